"""Gemini, as the package `google-genai` has it."""

import json

import shapes
from google import genai
from google.genai import types
from pydantic import TypeAdapter, ValidationError

# The signature of a thought. It has to be sent back verbatim, on the part that it came with.
SEAL = "Q3NFQkNpNEJqejFyWDk="


def check(request):
    """Checks that the official client can send the request and the service accepts it."""
    shapes.need(request.query == "alt=sse", "/", "does not ask for events, or for more")
    body = {name: typed(name, value) for name, value in request.body.items() if value != {}}
    # The official client spells some names in an equivalent way. Ours has to use the documented names.
    if "google-genai" in request.headers.get("user-agent", ""):
        request.body = body
    shapes.need(request.body == body, "/", f"is not how the types write it: {json.dumps(body)}")
    for number, content in enumerate(body["contents"]):
        shapes.need(content["parts"], f"/contents/{number}", "is empty")
        for part in content["parts"]:
            shapes.need(part.get("text") != "" or "thoughtSignature" in part, f"/contents/{number}", "has an empty text")
    check_order(body["contents"])


TYPES = {
    "contents": list[types.Content],
    "systemInstruction": types.Content,
    "tools": list[types.Tool],
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
}


def typed(name, value):
    """Parses and encodes a field of the request with its type."""
    shapes.need(name in TYPES, "/", f"{name} is no field of the request")
    adapter = TypeAdapter(TYPES[name])
    try:
        made = adapter.validate_python(value)
    except ValidationError as error:
        raise shapes.Wrong(f"/{name}", str(error.errors()[0])) from None
    return plain(json.loads(adapter.dump_json(made, exclude_unset=True, by_alias=True)))


def plain(value, name=None):
    """Converts URL-safe base64, which the types write, to the standard form; the service accepts both."""
    if isinstance(value, dict):
        return {name: plain(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.translate({45: "+", 95: "/"}) if name in ("data", "thoughtSignature") else value


def check_order(contents):
    """Checks that every call is answered by the next content, in order, and signed parts are unchanged."""
    open_calls = []
    for number, content in enumerate(contents):
        at = f"/contents/{number}"
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        answers = [(answer["name"], answer.get("id")) for answer in answers]
        shapes.need(answers == open_calls, at, f"answers {answers} and not {open_calls}")
        calls = [part for part in content["parts"] if "functionCall" in part]
        open_calls = [(part["functionCall"]["name"], part["functionCall"].get("id")) for part in calls]
        shapes.need(not calls or content["role"] == "model", at, "is out of turn")
        shapes.need(not answers or content["role"] == "user", at, "is out of turn")
        if calls:
            shapes.need(calls[0].get("thoughtSignature") == SEAL, at, "has lost or changed what sealed its thought")
    shapes.need(not open_calls, "/contents", f"{open_calls} are not answered")


def chunk(candidate=None, **fields):
    body = {"modelVersion": "gemini-stub-1", "responseId": "resp_1", **fields}
    if candidate is not None:
        body["candidates"] = [{"index": 0, **candidate}]
    made = types.GenerateContentResponse.model_validate(body)
    data = made.model_dump_json(exclude_unset=True, by_alias=True)
    return f"data: {data}\r\n\r\n".encode()


def parts(*parts, **candidate):
    return chunk({"content": {"role": "model", "parts": list(parts)}, **candidate})


USAGE = {
    "promptTokenCount": 90, "cachedContentTokenCount": 60, "candidatesTokenCount": 15, "thoughtsTokenCount": 5,
    "totalTokenCount": 110,
}


def end(reason="STOP", **candidate):
    content = {"role": "model", "parts": [{"text": ""}]}
    return chunk({"content": content, "finishReason": reason, **candidate}, usageMetadata=USAGE)


def text(request):
    yield chunk(usageMetadata={"promptTokenCount": 90, "totalTokenCount": 90})
    for piece in ["Hel", "lo, w", "\u00f6rld \U0001f980"]:
        yield parts({"text": piece})
    yield end()


def parallel(request):
    """A thought, then two parallel calls: the first signed, the second with an id."""
    names = [tool["name"] for tool in request.body["tools"][0]["functionDeclarations"]]
    yield parts({"text": "First this. ", "thought": True})
    yield parts({"text": "Then th\u00e4t.", "thought": True})
    first = {"functionCall": {"name": names[0], "args": {"path": "a"}}, "thoughtSignature": SEAL}
    yield parts(first, {"functionCall": {"id": "fc_b", "name": names[1], "args": {"path": "\u00fc"}}})
    yield end()


def sealed(request):
    """Text whose signature comes last, on an empty part."""
    yield parts({"text": "It "})
    yield parts({"text": "is."})
    yield parts({"text": "", "thoughtSignature": SEAL}, finishReason="STOP")


def searched(request):
    """Provider-executed code, and a search that is reported beside the text."""
    yield parts({"executableCode": {"language": "PYTHON", "code": "1 + 1"}})
    yield parts({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}})
    yield parts({"text": "Crabs."})
    web = {"web": {"uri": "https://example.com", "title": "Crabs"}}
    yield end(groundingMetadata={"webSearchQueries": ["crabs"], "groundingChunks": [web]})


def refusal(request):
    yield parts({"text": "I will "})
    yield parts({"text": "not."})
    yield end("SAFETY")


def refused(request):
    yield chunk(promptFeedback={"blockReason": "SAFETY", "blockReasonMessage": f"{request.key()} asks too much"})


def length(request):
    yield parts({"text": "and then"})
    yield end("MAX_TOKENS")


def malformed(request):
    yield chunk({"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": f"Malformed function call: {request.key()}"})


def late_error(request):
    yield parts({"text": "hi"})
    yield b"data: " + json.dumps(error(500, f"{request.key()} broke")).encode() + b"\r\n\r\n"


SCENARIOS = {
    "text": text,
    "parallel": parallel,
    "sealed": sealed,
    "searched": searched,
    "refusal": refusal,
    "refused": refused,
    "length": length,
    "malformed": malformed,
    "late-error": late_error,
}

STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def error(status, message):
    return {"error": {"code": status, "message": message, "status": STATES.get(status, "UNKNOWN")}}


def official(base, request):
    """Sends the same request with the official client, and returns how it decodes the answer."""
    options = types.HttpOptions(base_url=base, retry_options=types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key="sk-official", http_options=options, vertexai=False)
    body = request.body
    config = types.GenerateContentConfig(
        system_instruction=body.get("systemInstruction"),
        tools=[types.Tool.model_validate(tool) for tool in body.get("tools", [])] or None,
        tool_config=body.get("toolConfig"),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        **body.get("generationConfig", {}),
    )
    contents = [types.Content.model_validate(content) for content in body["contents"]]
    model = request.path.rsplit("/", 1)[1].split(":")[0]
    chunks = list(client.models.generate_content_stream(model=model, contents=contents, config=config))
    items, usage = [], None
    for one in chunks:
        usage = one.usage_metadata or usage
        for candidate in one.candidates or []:
            items += candidate.content.parts if candidate.content and candidate.content.parts else []
    calls = [item.function_call for item in items if item.function_call]
    return {
        "text": "".join(item.text for item in items if item.text and not item.thought),
        "usage": json.loads(usage.model_dump_json(exclude_unset=True)) if usage else None,
        "calls": [{"id": call.id, "arguments": call.args} for call in calls],
    }
