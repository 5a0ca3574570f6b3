"""Responses, as the package `openai` has them."""

import json

import shapes
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

EVENT = TypeAdapter(ResponseStreamEvent)

THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First this."}, {"type": "summary_text", "text": "Then that."}],
    "encrypted_content": "gAAAAAB-sealed",
}


def check(request):
    """Checks that the official client can send the request, and that it needs nothing stored."""
    shapes.check(request.body, ResponseCreateParamsStreaming)
    shapes.need(request.body["store"] is False, "/store", "is not false")
    open_calls = set()
    for number, item in enumerate(request.body["input"]):
        if item.get("type") == "function_call":
            open_calls.add(item["call_id"])
        if item.get("type") == "function_call_output":
            shapes.need(item["call_id"] in open_calls, f"/input/{number}", "answers no call")
            open_calls.remove(item["call_id"])
        if item.get("type") == "reasoning":
            shapes.need(item.get("encrypted_content"), f"/input/{number}", "is not stored and not sent along")
    shapes.need(not open_calls, "/input", f"{open_calls} are not answered")


class Events:
    """Numbers the events of one response and builds them from the package's types."""

    def __init__(self, request):
        self.request, self.number, self.output = request, 0, []

    def event(self, kind, **fields):
        event = {"type": kind, "sequence_number": self.number, **fields}
        self.number += 1
        made = EVENT.validate_python(event)
        assert made.type == kind, made
        data = made.model_dump_json(exclude_unset=True, by_alias=True)
        return f"event: {kind}\ndata: {data}\n\n".encode()

    def response(self, status, **more):
        response = {
            "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-stub-1", "status": status,
            "output": self.output, "parallel_tool_calls": True, "tool_choice": "auto",
            "tools": self.request.body.get("tools", []), **more,
        }
        return Response.model_validate(response).model_dump(exclude_unset=True, by_alias=True)

    def start(self):
        yield self.event("response.created", response=self.response("in_progress"))
        yield self.event("response.in_progress", response=self.response("in_progress"))

    def added(self, item):
        self.output.append(item)
        place = len(self.output) - 1
        return place, self.event("response.output_item.added", output_index=place, item=item)

    def done(self, place, item):
        self.output[place] = item
        return self.event("response.output_item.done", output_index=place, item=item)

    def thought(self):
        place, event = self.added({"type": "reasoning", "id": "rs_1", "summary": []})
        yield event
        for number, part in enumerate(THOUGHT["summary"]):
            where = {"item_id": "rs_1", "output_index": place, "summary_index": number}
            yield self.event("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}, **where)
            for piece in (part["text"][:5], part["text"][5:]):
                yield self.event("response.reasoning_summary_text.delta", delta=piece, **where)
            yield self.event("response.reasoning_summary_text.done", text=part["text"], **where)
        yield self.done(place, THOUGHT)

    def message(self, pieces, kind="text"):
        field, name = ("refusal", "refusal") if kind == "refusal" else ("text", "output_text")
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
        place, event = self.added(item)
        yield event
        where = {"item_id": "msg_1", "output_index": place, "content_index": 0}
        more = {} if kind == "refusal" else {"logprobs": []}
        for piece in pieces:
            yield self.event(f"response.{name}.delta", delta=piece, **where, **more)
        part = {"type": name, field: "".join(pieces), **({} if kind == "refusal" else {"annotations": []})}
        yield self.done(place, {**item, "status": "completed", "content": [part]})

    def end(self, status="completed", **more):
        usage = {
            "input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
            "output_tokens_details": {"reasoning_tokens": 5},
        }
        yield self.event(f"response.{status}", response=self.response(status, usage=usage, **more))


def text(request):
    events = Events(request)
    yield from events.start()
    yield from events.message(["Hel", "lo, w", "\u00f6rld \U0001f980"])
    yield from events.end()


def parallel(request):
    """A thought, then two calls with interleaved arguments."""
    events = Events(request)
    yield from events.start()
    yield from events.thought()
    names = [tool["name"] for tool in request.body["tools"]]
    arguments = ['{"path": "a"}', '{"path": "\u00fc"}']
    items, places = [], []
    for number, label in enumerate("ab"):
        item = {"type": "function_call", "id": f"fc_{label}", "call_id": f"call_{label}", "name": names[number]}
        place, event = events.added({**item, "arguments": "", "status": "in_progress"})
        yield event
        items.append({**item, "arguments": arguments[number], "status": "completed"})
        places.append(place)
    for number, cut in [(1, slice(0, 5)), (0, slice(0, 3)), (1, slice(5, None)), (0, slice(3, None))]:
        where = {"item_id": items[number]["id"], "output_index": places[number]}
        yield events.event("response.function_call_arguments.delta", delta=arguments[number][cut], **where)
    for place, item in zip(places, items):
        yield events.done(place, item)
    yield from events.end()


def searched(request):
    """A provider-executed call, then text."""
    events = Events(request)
    yield from events.start()
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "crabs"}}
    place, event = events.added({**item, "status": "in_progress"})
    yield event
    yield events.done(place, item)
    yield from events.message(["Crabs."])
    yield from events.end()


def refusal(request):
    events = Events(request)
    yield from events.start()
    yield from events.message(["I will ", "not."], "refusal")
    yield from events.end()


def length(request):
    events = Events(request)
    yield from events.start()
    yield from events.message(["and then"])
    yield from events.end("incomplete", incomplete_details={"reason": "max_output_tokens"})


def failed(request):
    events = Events(request)
    yield from events.start()
    yield from events.end("failed", error={"code": "rate_limit_exceeded", "message": f"{request.key()} is too fast"})


def late_error(request):
    events = Events(request)
    yield from events.start()
    yield events.event("error", code="server_error", message=f"{request.key()} broke", param=None)


SCENARIOS = {
    "text": text,
    "parallel": parallel,
    "searched": searched,
    "refusal": refusal,
    "length": length,
    "failed": failed,
    "late-error": late_error,
}


def error(status, message):
    import openai_chat

    return openai_chat.error(status, message)


def official(base, request):
    """Sends the same request with the official client, and returns how it decodes the answer."""
    client = OpenAI(api_key="sk-official", base_url=base + "/v1", max_retries=0)
    with client.responses.create(**request.body) as events:
        response = list(events)[-1].response
    calls = [item for item in response.output if item.type == "function_call"]
    return {
        "text": response.output_text,
        "usage": response.usage.model_dump(),
        "calls": [{"id": call.call_id, "name": call.name, "arguments": call.arguments} for call in calls],
        "items": json.loads(json.dumps([item.model_dump(exclude_unset=True, by_alias=True) for item in response.output])),
    }
