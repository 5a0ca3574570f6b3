"""Chat completions, as the package `openai` has them."""

import json

import shapes
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

# Fields that compatible servers add and that OpenAI itself does not know.
EXTENSIONS = ("reasoning_content", "reasoning")


def check(request):
    """Checks that the official client can send the request."""
    body = json.loads(json.dumps(request.body))
    if "compatible" in request.flags:
        for message in body["messages"]:
            for field in EXTENSIONS:
                message.pop(field, None)
    shapes.check(body, CompletionCreateParamsStreaming)
    check_order(body["messages"])


def check_order(messages):
    """Checks that every call is answered by the next messages, as the service requires."""
    open_calls = set()
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            shapes.need(message["tool_call_id"] in open_calls, f"/messages/{number}", "answers no call")
            open_calls.remove(message["tool_call_id"])
            continue
        shapes.need(not open_calls, f"/messages/{number}", f"{open_calls} are not answered")
        open_calls = {call["id"] for call in message.get("tool_calls", [])}
    shapes.need(not open_calls, "/messages", f"{open_calls} are not answered")


def event(choices, usage=None, **more):
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-stub-1"}
    chunk = ChatCompletionChunk.model_validate({**chunk, "choices": choices, "usage": usage, **more}, strict=True)
    return b"data: " + chunk.model_dump_json(exclude_unset=True).encode() + b"\n\n"


def delta(finish_reason=None, **delta):
    return event([{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def call(index, text=None, id=None, name=None):
    function = {key: value for key, value in (("name", name), ("arguments", text)) if value is not None}
    whole = {"index": index, "function": function}
    return delta(tool_calls=[{**whole, "id": id, "type": "function"} if id else whole])


def usage():
    return event([], {
        "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 5},
    })


DONE = b"data: [DONE]\n\n"


def text(request):
    yield b": a comment\r\n\r\n"
    yield delta(role="assistant", content="")
    for piece in ["Hel", "lo, w", "\u00f6rld \U0001f980"]:
        yield delta(content=piece)
    yield delta("stop")
    yield usage()
    yield DONE


def parallel(request):
    """Two calls with interleaved arguments."""
    yield delta(role="assistant", content=None)
    yield call(0, "", "call_a", request.body["tools"][0]["function"]["name"])
    yield call(1, "", "call_b", request.body["tools"][1]["function"]["name"])
    for index, piece in [(1, '{"path"'), (0, '{"pa'), (1, ': "\u00fc"}'), (0, 'th":'), (0, ' "a"}')]:
        yield call(index, piece)
    yield delta("tool_calls")
    yield usage()
    yield DONE


def refusal(request):
    yield delta(role="assistant", refusal="I will ")
    yield delta(refusal="not.")
    yield delta("stop")
    yield DONE


def length(request):
    yield delta(role="assistant", content="and then")
    yield delta("length")
    yield DONE


def no_end(request):
    """A server that ends the stream after the finish reason."""
    yield delta(role="assistant", content="hi")
    yield delta("stop")


def thinking(request):
    """A compatible server that sends reasoning."""
    for piece in [{"reasoning_content": "Let me "}, {"reasoning_content": "see."}, {"content": "Yes."}]:
        yield b"data: " + json.dumps({"choices": [{"index": 0, "delta": piece}]}).encode() + b"\n\n"
    yield b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
    yield DONE


def late_error(request):
    yield delta(role="assistant", content="hi")
    yield b"data: " + json.dumps(error(500, f"{request.key()} broke")).encode() + b"\n\n"


SCENARIOS = {
    "text": text,
    "parallel": parallel,
    "refusal": refusal,
    "length": length,
    "no-end": no_end,
    "thinking": thinking,
    "late-error": late_error,
}

KINDS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("request_forbidden", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def error(status, message):
    kind, code = KINDS.get(status, ("server_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def official(base, request):
    """Sends the same request with the official client, and returns how it decodes the answer."""
    client = OpenAI(api_key="sk-official", base_url=base + "/v1", max_retries=0)
    with client.chat.completions.create(**request.body) as chunks:
        chunks = list(chunks)
    told, calls = {"text": "", "usage": None}, {}
    for chunk in chunks:
        told["usage"] = chunk.usage.model_dump() if chunk.usage else told["usage"]
        for choice in chunk.choices:
            told["text"] += choice.delta.content or choice.delta.refusal or ""
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.id or ""
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
    return {**told, "calls": list(calls.values())}
