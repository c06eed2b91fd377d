"""The official Python packages against the simulator, and our requests against their types.

Run by `cargo xtask peers llm-contract`; takes the paths of the server and of the program, and
those of Prism and of an OpenAPI document where our requests are to be held against one.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import anthropic
import openai
import pydantic
from anthropic.types.messages import batch_create_params as anthropic_batch
from openai.types import batch_create_params as openai_batch
from openai.types.chat import completion_create_params as openai_chat

SERVE, PROGRAM = sys.argv[1:3]
# Prism and an OpenAPI document, where they are given.
OPENAPI = sys.argv[3:5]
KEY = "sk-contract"


class Server:
    """One run of the simulator."""

    def __init__(self, *mode):
        self.process = subprocess.Popen(
            [SERVE, *mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self.process.stdout.readline().strip()

    def end(self):
        """Ends it; returns what was paid, how many batches, and what was seen."""
        out, _ = self.process.communicate("")
        books, *seen = [json.loads(line) for line in out.splitlines()]
        return books["paid"], books["batches"], seen

    def anthropic(self):
        return anthropic.Anthropic(api_key=KEY, base_url=self.url)

    def openai(self):
        return openai.OpenAI(api_key=KEY, base_url=self.url + "/v1")


def until(poll, done):
    for _ in range(50):
        state = poll()
        if done(state):
            return state
        time.sleep(0.01)
    raise AssertionError(f"no end: {state}")


def anthropic_works():
    server = Server()
    client = server.anthropic()
    ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "one"}]}
    assert client.messages.create(**ask).content[0].text == "answer to one"
    requests = [{"custom_id": name, "params": ask} for name in ("a", "b")]
    batch = client.messages.batches.create(requests=requests)
    assert [b.id for b in client.messages.batches.list(limit=5)] == [batch.id]
    poll = lambda: client.messages.batches.retrieve(batch.id)
    ended = until(poll, lambda b: b.processing_status == "ended")
    assert ended.request_counts.succeeded == 2
    lines = {line.custom_id: line.result for line in client.messages.batches.results(batch.id)}
    assert lines["b"].message.content[0].text == "answer to one"
    other = client.messages.batches.create(requests=requests)
    assert client.messages.batches.cancel(other.id).processing_status == "canceling"
    until(lambda: client.messages.batches.retrieve(other.id), lambda b: b.processing_status == "ended")
    assert all(l.result.type == "canceled" for l in client.messages.batches.results(other.id))
    for bad in ([{"custom_id": "no/id", "params": ask}], requests[:1] * 2):
        try:
            client.messages.batches.create(requests=bad)
            raise AssertionError("it was taken")
        except anthropic.BadRequestError:
            pass
    server.end()


def openai_works():
    server = Server()
    client = server.openai()
    body = {"model": "m", "messages": [{"role": "user", "content": "one"}]}
    answer = client.chat.completions.create(**body)
    assert answer.choices[0].message.content == "answer to one"
    line = lambda name, body: json.dumps(
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
    )

    def batch_of(*lines):
        file = client.files.create(purpose="batch", file=("x.jsonl", "\n".join(lines).encode()))
        return client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )

    batch = batch_of(line("a", body), line("b", body))
    over = ("completed", "failed", "expired", "cancelled")
    poll = lambda: client.batches.retrieve(batch.id)
    ended = until(poll, lambda b: b.status in over)
    assert (ended.status, ended.request_counts.completed) == ("completed", 2)
    lines = client.files.content(ended.output_file_id).text.splitlines()
    assert {json.loads(line)["custom_id"] for line in lines} == {"a", "b"}
    bad = batch_of(line("a", body), line("a", body))
    failed = until(lambda: client.batches.retrieve(bad.id), lambda b: b.status in over)
    assert (failed.status, failed.errors.data[0].line) == ("failed", 2)
    assert batch.id in [b.id for b in client.batches.list(limit=5)]
    server.end()


def ours(server, provider, folder):
    """Runs our program for two requests; returns its summary."""
    requests = os.path.join(folder, "r.jsonl")
    with open(requests, "w") as file:
        for name in ("a", "b"):
            ask = {"id": name, "kind": "judge", "model": "m", "prompt": f"{name} of ours"}
            file.write(json.dumps(ask) + "\n")
    keys = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY, "PATH": os.environ["PATH"]}
    command = [PROGRAM, "llm", "run", requests, "--provider", provider, "--base-url", server.url]
    command += ["--out", os.path.join(folder, "o.jsonl"), "--json", "--poll-interval", "10ms"]
    ran = subprocess.run(command, env=keys, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran
    return json.loads(ran.stdout)["summary"]


def one_lost_answer():
    ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "one"}]}
    server = Server("lose")
    try:
        server.anthropic().messages.batches.create(requests=[{"custom_id": "a", "params": ask}])
    except anthropic.APIConnectionError:
        pass
    _, theirs, _ = server.end()
    print(f"lost answers: the package anthropic made {theirs} paid batches of 1 request")

    server = Server("lose")
    client = server.openai()
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": ask}
    file = client.files.create(purpose="batch", file=("x.jsonl", json.dumps(line).encode()))
    try:
        client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
    except openai.APIConnectionError:
        pass
    _, theirs, _ = server.end()
    print(f"lost answers: the package openai made {theirs} paid batches of 1 request")

    for provider in ("anthropic", "openai"):
        server = Server("lose")
        with tempfile.TemporaryDirectory() as folder:
            summary = ours(server, provider, folder)
        paid, batches, _ = server.end()
        assert (batches, len(paid), summary["succeeded"]) == (1, 2, 2), (paid, summary)
        print(f"lost answers: ours made {batches} paid batch at {provider}, and has its answers")


def consumed(value):
    """Walks through a value, so that what is checked late is checked."""
    if isinstance(value, dict):
        return {key: consumed(item) for key, item in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [consumed(item) for item in value]


def our_requests_are_theirs():
    checked = 0
    check = lambda kind, body: consumed(pydantic.TypeAdapter(kind).validate_python(body))
    for provider in ("anthropic", "openai"):
        server = Server()
        with tempfile.TemporaryDirectory() as folder:
            ours(server, provider, folder)
        _, _, seen = server.end()
        for call in (call for call in seen if call["method"] == "POST"):
            checked += 1
            if call["path"] == "/v1/messages/batches":
                check(anthropic_batch.BatchCreateParams, json.loads(call["body"]))
            elif call["path"] == "/v1/batches":
                check(openai_batch.BatchCreateParams, json.loads(call["body"]))
            elif call["path"] == "/v1/files":
                lines = [l for l in call["body"].splitlines() if l.startswith("{")]
                assert len(lines) == 2
                for line in map(json.loads, lines):
                    assert set(line) == {"custom_id", "method", "url", "body"}
                    check(openai_chat.CompletionCreateParamsNonStreaming, line["body"])
            else:
                raise AssertionError(call)
    print(f"types: {checked} of our calls are valid for the packages' own types")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def status_of(url, call):
    """Sends a call of ours to another server; returns the status and what was said."""
    skipped = ("host", "content-length", "connection")
    headers = {name: value for name, value in call["headers"] if name not in skipped}
    body = call["body"].encode() or None
    request = urllib.request.Request(url + call["path"], body, headers, method=call["method"])
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def our_requests_are_valid():
    """Holds what we send against the document; Prism answers 422 to what is not valid."""
    prism, document = OPENAPI
    port = free_port()
    command = [prism, "mock", "-h", "127.0.0.1", "-p", str(port), "--errors", document]
    mock = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in mock.stdout:
        said.append(line)
        if "listening" in line.lower():
            break
    else:
        raise AssertionError(f"prism did not start: {said}")
    # Read on, so that it never waits for us.
    threading.Thread(target=mock.stdout.read, daemon=True).start()
    try:
        checked, unknown = 0, set()
        for provider in ("anthropic", "openai"):
            server = Server()
            with tempfile.TemporaryDirectory() as folder:
                ours(server, provider, folder)
            _, _, seen = server.end()
            for call in seen:
                # A document may begin its paths behind the version.
                short = {**call, "path": call["path"].removeprefix("/v1")}
                tried = [status_of(f"http://127.0.0.1:{port}", one) for one in (call, short)]
                status, why = next((one for one in tried if one[0] not in (404, 405)), tried[0])
                if status in (404, 405):
                    unknown.add(f"{call['method']} {call['path'].split('?')[0]}")
                    continue
                assert status < 400, (call["method"], call["path"], status, why)
                checked += 1
        assert checked > 0, f"the document knows none of our calls: {sorted(unknown)}"
        print(f"openapi: {checked} of our calls are valid for {os.path.basename(document)}")
        if unknown:
            print(f"openapi: it does not know {len(unknown)} others")
    finally:
        mock.kill()


print(f"anthropic {anthropic.__version__}, openai {openai.__version__}")
anthropic_works()
print("anthropic: messages, batches, list, results, cancel and refusals work")
openai_works()
print("openai: chat, files, batches, list, output and failed validation work")
one_lost_answer()
our_requests_are_theirs()
if OPENAPI:
    our_requests_are_valid()
