"""Messages, as the package `anthropic` has them."""

import json
import re

import shapes
from anthropic import Anthropic
from anthropic._constants import ANTHROPIC_API_VERSION
from anthropic.types import RawMessageStreamEvent
from anthropic.types.beta import message_create_params as beta
from anthropic.types.beta_error_response import BetaErrorResponse
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

EVENT = TypeAdapter(RawMessageStreamEvent)

# A thought and its signature. Both have to be sent back verbatim.
THOUGHT = {"type": "thinking", "thinking": "First this. Then th\u00e4t.", "signature": "EqQBCkYIBxgCKkD+sealed/=="}
SEALED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4="}


def check(request):
    """Checks that the official client can send the request and the service accepts it."""
    body = request.body
    # Beta features have their own types.
    is_beta = "anthropic-beta" in request.headers
    shapes.check(body, beta.MessageCreateParamsStreaming if is_beta else MessageCreateParamsStreaming)
    version = request.headers.get("anthropic-version")
    shapes.need(version == ANTHROPIC_API_VERSION, "/", f"is of version {version}")
    check_thinking(body)
    check_names(body)
    check_order(body["messages"])
    marks = json.dumps(body).count('"cache_control"')
    shapes.need(marks <= 4, "/", f"marks {marks} places to cache")


def check_thinking(body):
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled":
        shapes.need(1024 <= thinking["budget_tokens"] < body["max_tokens"], "/thinking", "is out of bounds")
    if thinking:
        forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
        shapes.need(not forced, "/tool_choice", "may not force a call while thinking")


def check_names(body):
    for number, tool in enumerate(body.get("tools", [])):
        shapes.need(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]), f"/tools/{number}/name", "is no name")


def check_order(messages):
    """Checks that roles alternate, no text is empty, calls are answered at once, and signed blocks are unchanged."""
    open_calls, seen = [], set()
    for number, message in enumerate(messages):
        at = f"/messages/{number}"
        shapes.need(message["role"] == ("user", "assistant")[number % 2], at, "is out of turn")
        blocks = message["content"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        shapes.need(results == open_calls, at, f"answers {results} and not {open_calls}")
        kinds = [block["type"] == "tool_result" for block in blocks]
        shapes.need(kinds == sorted(kinds, reverse=True), at, "says something before it answers")
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        shapes.need(not seen & set(open_calls), at, "uses an id again")
        seen.update(open_calls)
        for block in blocks:
            shapes.need(block["type"] != "text" or block["text"].strip(), at, "has an empty text")
        if "toolu_a" in open_calls:
            shapes.need(blocks[:2] == [THOUGHT, SEALED], at, "has lost or changed what was thought")
    shapes.need(not open_calls, "/messages", f"{open_calls} are not answered")


def event(kind, **fields):
    made = EVENT.validate_python({"type": kind, **fields})
    assert made.type == kind, made
    return f"event: {kind}\ndata: {made.model_dump_json(exclude_unset=True, by_alias=True)}\n\n".encode()


def start():
    usage = {"input_tokens": 30, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 10, "output_tokens": 1}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-stub-1", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }
    return event("message_start", message=message)


def begin(index, block):
    return event("content_block_start", index=index, content_block=block)


def piece(index, kind, **fields):
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index):
    return event("content_block_stop", index=index)


def end(reason, **details):
    usage = {"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}}
    yield event("message_delta", delta={"stop_reason": reason, "stop_sequence": None, **details}, usage=usage)
    yield event("message_stop")


def words(index, pieces):
    yield begin(index, {"type": "text", "text": ""})
    for text in pieces:
        yield piece(index, "text_delta", text=text)
    yield stop(index)


def text(request):
    yield start()
    yield from words(0, ["Hel", "lo, w", "\u00f6rld \U0001f980"])
    yield b'event: ping\ndata: {"type": "ping"}\n\n'
    yield b'event: news\ndata: {"type": "something_new", "index": 9}\n\n'
    yield from end("end_turn")


def parallel(request):
    """A thought, a redacted thought, then two calls with interleaved arguments."""
    yield start()
    yield begin(0, {"type": "thinking", "thinking": "", "signature": ""})
    for part in (THOUGHT["thinking"][:7], THOUGHT["thinking"][7:]):
        yield piece(0, "thinking_delta", thinking=part)
    yield piece(0, "signature_delta", signature=THOUGHT["signature"])
    yield stop(0)
    yield begin(1, SEALED)
    yield stop(1)
    names = [tool["name"] for tool in request.body["tools"]]
    for index, label in ((2, "a"), (3, "b")):
        yield begin(index, {"type": "tool_use", "id": f"toolu_{label}", "name": names[index - 2], "input": {}})
    for index, part in [(3, ""), (3, '{"path"'), (2, '{"pa'), (3, ': "\u00fc"}'), (2, 'th":'), (2, ' "a"}')]:
        yield piece(index, "input_json_delta", partial_json=part)
    yield stop(2)
    yield stop(3)
    yield from end("tool_use")


FOUND = {
    "type": "web_search_result", "url": "https://example.com", "title": "Crabs", "encrypted_content": "Eo8B", "page_age": None,
}
CITATION = {
    "type": "web_search_result_location", "url": "https://example.com", "title": "Crabs", "encrypted_index": "Eo8B",
    "cited_text": "Crabs.",
}


def searched(request):
    """A provider-executed call, then text that cites it."""
    yield start()
    yield begin(0, {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})
    for part in ('{"query": ', '"crabs"}'):
        yield piece(0, "input_json_delta", partial_json=part)
    yield stop(0)
    yield begin(1, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]})
    yield stop(1)
    yield begin(2, {"type": "text", "text": "", "citations": []})
    yield piece(2, "citations_delta", citation=CITATION)
    yield piece(2, "text_delta", text="Crabs.")
    yield stop(2)
    yield from end("end_turn")


def refusal(request):
    yield start()
    yield from words(0, ["I will ", "not."])
    details = {"type": "refusal", "category": None, "explanation": "no"}
    yield from end("refusal", stop_details=details)


def refused(request):
    yield start()
    details = {"type": "refusal", "category": None, "explanation": f"{request.key()} asks too much"}
    yield from end("refusal", stop_details=details)


def length(request):
    yield start()
    yield from words(0, ["and then"])
    yield from end("max_tokens")


def late_error(request):
    yield start()
    yield begin(0, {"type": "text", "text": ""})
    yield piece(0, "text_delta", text="hi")
    yield b"event: error\ndata: " + json.dumps(error(500, f"{request.key()} broke")).encode() + b"\n\n"


def overloaded(request):
    yield start()
    yield b"event: error\ndata: " + json.dumps(error(529, f"{request.key()} has to wait")).encode() + b"\n\n"


SCENARIOS = {
    "text": text,
    "parallel": parallel,
    "searched": searched,
    "refusal": refusal,
    "refused": refused,
    "length": length,
    "late-error": late_error,
    "overloaded": overloaded,
}

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def error(status, message):
    # The package has no type for requests that are too large; the service documents one.
    if status == 413:
        return {"type": "error", "error": {"type": "request_too_large", "message": message}, "request_id": "req_1"}
    kind = KINDS.get(status, "api_error")
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    made = BetaErrorResponse.model_validate(body)
    assert made.error.type == kind, made
    return json.loads(made.model_dump_json(exclude_unset=True))


def official(base, request):
    """Sends the same request with the official client, and returns how it decodes the answer."""
    client = Anthropic(api_key="sk-official", base_url=base, max_retries=0)
    body = {name: value for name, value in request.body.items() if name != "stream"}
    betas = request.headers.get("anthropic-beta")
    messages, more = (client.beta.messages, {"betas": [betas]}) if betas else (client.messages, {})
    with messages.stream(**body, **more) as stream:
        message = stream.get_final_message()
    items = [json.loads(block.model_dump_json(exclude_unset=True)) for block in message.content]
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "usage": json.loads(message.usage.model_dump_json()),
        "calls": [{"id": item["id"], "arguments": item["input"]} for item in items if item["type"] == "tool_use"],
        "items": items,
        "stop_reason": message.stop_reason,
    }
