"""A stub of the providers of models, on loopback.

Requests are checked with the types of the providers' official clients, and answers are made from them. What happens is
chosen by the path: `/<scenario>[+flag…]/v1/chat/completions`. Every wire format is a module of its own (see `WIRES`) with
`check(request)`, `SCENARIOS`, `error(status, message)` and `official(base, request)`.

Flags: `bytewise` sends every byte on its own; `gated` waits before each event but the first until the test lets it go on;
`unframed` does not tell where the body ends; `drop` closes the connection half-way.

`/control/log` tells what was asked and whether the client has left a gated stream, `/control/release?<scenario+flags>`
opens a gate once, and `/control/official` sends the last request again with the official client and tells what that makes
of the answer.

The first line that is printed is the port. The server ends when its input does.
"""

import asyncio
import collections
import importlib
import json
import os
import re
import sys
import threading

from shapes import Wrong

# The end of the path, and the module that answers.
WIRES = [
    (r"/chat/completions$", "openai_chat"),
    (r"/responses$", "openai_responses"),
    (r"/messages$", "anthropic_messages"),
    (r":streamGenerateContent$", "gemini"),
]

ERROR_HEADERS = {
    "seconds": [("retry-after", "7")],
    "ms": [("retry-after-ms", "1500"), ("retry-after", "2")],
    "date": [("date", "Mon, 02 Nov 2026 10:00:00 GMT"), ("retry-after", "Mon, 02 Nov 2026 10:01:30 GMT")],
}


class Request:
    """A request."""

    def __init__(self, path, headers, body, connection):
        path, _, self.query = path.partition("?")
        self.path, self.headers, self.connection, self.left = path, headers, connection, False
        scenario, *self.flags = path.split("/")[1].split("+")
        self.scenario, self.body = scenario, json.loads(body) if body else None

    def key(self):
        """The key, wherever it is sent. A server that repeats keys in errors is what our client has to cope with."""
        names = ("authorization", "x-api-key", "x-goog-api-key")
        return next((self.headers[name] for name in names if name in self.headers), "no key")

    def told(self):
        """Returns the request as the test sees it."""
        names = ("path", "query", "scenario", "headers", "body", "connection", "left")
        return {name: getattr(self, name) for name in names}


class Server:
    """Answers requests and stores them."""

    def __init__(self):
        self.log, self.connections = [], 0
        # A gate for each first step of a path, so that streams do not release each other.
        self.gates = collections.defaultdict(lambda: asyncio.Semaphore(0))
        self.address = None

    async def connect(self, reader, writer):
        self.connections += 1
        connection = self.connections
        try:
            while request := await read_request(reader, connection):
                if not await self.answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, request, reader, writer):
        """Answers one request; returns whether the connection can be reused."""
        if request.path.startswith("/control/"):
            return await self.control(request, writer)
        self.log.append(request)
        wire = next((module for end, module in WIRES if re.search(end, request.path)), None)
        if wire is None:
            return await send_json(writer, 404, {"error": {"message": f"nothing is at {request.path}"}})
        wire = importlib.import_module(wire)
        if error := re.fullmatch(r"error-(\d+)(?:-(\w+))?", request.scenario):
            status, form = int(error[1]), error[2]
            body = wire.error(status, f"{request.key()} was refused with {status}")
            return await send_json(writer, status, body, ERROR_HEADERS.get(form, []))
        if plain := PLAIN.get(request.scenario):
            return await plain(request, writer)
        try:
            wire.check(request)
            events = list(wire.SCENARIOS[request.scenario](request))
        except Wrong as wrong:
            return await send_json(writer, 400, wire.error(400, f"WRONG REQUEST: {wrong}"))
        return await self.stream(request, events, reader, writer)

    async def stream(self, request, events, reader, writer):
        framed = "unframed" not in request.flags
        framing = "transfer-encoding: chunked" if framed else "connection: close"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n".encode())
        if "drop" in request.flags:
            events = events[: len(events) // 2]
        for number, event in enumerate(events):
            if number and "gated" in request.flags and not await self.let_go_on(request, reader):
                return False
            pieces = [bytes([byte]) for byte in event] if "bytewise" in request.flags else [event]
            for piece in pieces:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if framed else piece)
            await writer.drain()
        if "drop" in request.flags or not framed:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def let_go_on(self, request, reader):
        """Waits until the test opens the gate; returns whether the client is still connected."""
        gate = asyncio.ensure_future(self.gates[request.path.split("/")[1]].acquire())
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({gate, gone}, return_when=asyncio.FIRST_COMPLETED)
        request.left = gone.done()
        other = gate if request.left else gone
        other.cancel()
        # Two must not read at once, so this one has to be over before the next request is read.
        await asyncio.gather(other, return_exceptions=True)
        return not request.left

    async def control(self, request, writer):
        what = request.path.removeprefix("/control/")
        if what == "release":
            self.gates[request.query].release()
            return await send_json(writer, 200, {})
        if what == "log":
            return await send_json(writer, 200, [request.told() for request in self.log])
        last = self.log[-1]
        wire = importlib.import_module(next(module for end, module in WIRES if re.search(end, last.path)))
        base = self.address + "/" + last.path.split("/")[1]
        try:
            told = await asyncio.get_running_loop().run_in_executor(None, wire.official, base, last)
        except Exception as error:
            return await send_json(writer, 500, {"error": repr(error)})
        return await send_json(writer, 200, told)


async def read_request(reader, connection):
    line = await reader.readline()
    if not line:
        return None
    path = line.decode().split(" ")[1]
    headers = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if "chunked" in headers.get("transfer-encoding", ""):
        raise ConnectionError("many servers do not read chunked requests, so ours must not be")
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(path, headers, body, connection)


async def send_json(writer, status, body, headers=()):
    return await send(writer, status, "application/json", json.dumps(body).encode(), headers)


async def send(writer, status, kind, body, headers=()):
    head = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in headers]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    return True


async def page(request, writer):
    body = f"<html><body>\n<h1>Bad gateway</h1> {request.key()}</body></html>".encode()
    return await send(writer, 502, "text/html", body)


async def redirect(request, writer):
    # A client that follows this one asks again without a body, and with its key.
    return await send(writer, 302, "text/plain", b"", [("location", "/text" + request.path[len("/redirect"):])])


async def hang_up(request, writer):
    return False


async def whole(request, writer):
    return await send_json(writer, 200, {"object": "chat.completion", "choices": [], "error": None})


async def hidden_error(request, writer):
    return await send_json(writer, 200, {"error": {"message": f"busy, {request.key()}", "type": "overloaded_error"}})


async def garbage(request, writer):
    return await send(writer, 200, "text/event-stream", f"data: {{{request.key()}\n\n".encode())


async def flood(request, writer):
    line = b": " + b"x" * 1022 + b"\n"
    return await send(writer, 200, "text/event-stream", line * 256)


# Answers that are the same for every wire format.
PLAIN = {
    "page": page,
    "redirect": redirect,
    "hang-up": hang_up,
    "whole": whole,
    "hidden-error": hidden_error,
    "garbage": garbage,
    "flood": flood,
}


def end_with_input():
    sys.stdin.read()
    os._exit(0)


async def main():
    server = Server()
    listener = await asyncio.start_server(server.connect, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.address = f"http://127.0.0.1:{port}"
    print(port, flush=True)
    threading.Thread(target=end_with_input, daemon=True).start()
    await listener.serve_forever()


asyncio.run(main())
