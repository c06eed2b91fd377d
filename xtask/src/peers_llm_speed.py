"""CPU time and memory of the official package `anthropic` and of ours, for the same batch.

Run by `cargo xtask peers llm-speed`; takes the paths of the server and of our example `jsonl`, a
folder, and how many requests. Each job is a process of its own; what is measured is its user and
system time and its largest memory. Ours writes its state and its results down, durably; the package
writes nothing. `peers_llm_speed.py create|results ..` is such a process.
"""

import json
import os
import resource
import subprocess
import sys

TEXT = 'fn main() { println!("\\n"); }\n' * 70


def client(url):
    import anthropic

    return anthropic.Anthropic(api_key="none", base_url=url, max_retries=0, timeout=600)


def create(url, path):
    requests = []
    with open(path) as file:
        for n, line in enumerate(file):
            line = json.loads(line)
            message = {"role": "user", "content": line["prompt"]}
            params = {"model": line["model"], "max_tokens": 4096, "messages": [message]}
            requests.append({"custom_id": f"r-{n}", "params": params})
    print(client(url).messages.batches.create(requests=requests).id)


def results(url, batch):
    length = sum(
        len(line.result.message.content[0].text)
        for line in client(url).messages.batches.results(batch)
    )
    print(length)


def measured(command):
    """Runs a process; returns what it printed, its CPU time in seconds and its memory in MB."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.environ["ANTHROPIC_API_KEY"] = "none"
        os.execv(command[0], command)
    os.close(write)
    with os.fdopen(read) as pipe:
        out = pipe.read().strip()
    _, status, usage = os.wait4(child, 0)
    assert status == 0, (command, status)
    return out, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    serve, jsonl, folder, count = *sys.argv[1:4], int(sys.argv[4])
    requests = os.path.join(folder, "requests.jsonl")
    with open(requests, "w") as file:
        for n in range(count):
            line = {"id": f"request {n}", "model": "m", "prompt": f"{n} {TEXT}"}
            file.write(json.dumps(line) + "\n")
    megabytes = os.path.getsize(requests) / 1e6
    server = subprocess.Popen(
        [serve, "large"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    url = server.stdout.readline().strip()
    python = [sys.executable, __file__]
    print(f"{count} requests, {megabytes:.0f} MB each way, on the same server")
    best = {}
    for round in range(3):
        state = os.path.join(folder, f"state{round}")
        job = lambda *command: measured(list(command))
        batch, *theirs_create = job(*python, "create", url, requests)
        length, *theirs_results = job(*python, "results", url, batch)
        _, *ours_create = job(jsonl, requests, url, state, "-", "10")
        again, *ours_again = job(jsonl, requests, url, state, "-")
        assert length == again, "the answers have the same length"
        _, *ours_read = job(jsonl, requests, url, state, "-")
        for name, (cpu, memory) in {
            "anthropic create": theirs_create,
            "anthropic results": theirs_results,
            "ours create": ours_create,
            "ours results, and reading the requests": ours_again,
            "ours reading the requests": ours_read,
        }.items():
            seen = best.get(name, (cpu, memory))
            best[name] = (min(seen[0], cpu), max(seen[1], memory))
    server.communicate("")
    for name, (cpu, memory) in best.items():
        print(f"{name}: {cpu:.2f} s CPU, {memory:.0f} MB")
    names = list(best)
    # The second process of ours reads the requests again, as a third one does that has nothing else
    # to do; the package's second one is told the name of the batch.
    results = best[names[3]][0] - best[names[4]][0]
    for theirs, ours in ((names[0], best[names[2]][0]), (names[1], results)):
        share = best[theirs][0] / ours
        print(f"{theirs}: ours takes 1/{share:.1f} of its CPU")
        assert share >= 6, "more than a sixth"


if sys.argv[1] == "create":
    create(*sys.argv[2:4])
elif sys.argv[1] == "results":
    results(*sys.argv[2:4])
else:
    main()
