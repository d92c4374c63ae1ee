"""Hosts, as network namespaces, on which `pages` runs blocks: `db-1`, `db-2` and `db-3`, and a fourth one for clients."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

from house_net import Network, ip, missing, namespaces, remove_namespaces

__all__ = ["missing", "play"]

PREFIX = "artillery-pages-"  # how the names of namespaces begin; the id of the process that made them follows
HOSTS = ["db-1", "db-2", "db-3"]
CLIENT = "client"
LIMIT = 60  # seconds until all nodes must be ready, and for a block of the client


def play(blocks, make_tools):
    """Runs blocks of one page. Returns each with its output, and with the reason if it failed. The file that a page has the reader
    copy to all hosts, `secret`, is in the folder of each."""
    leftovers()
    prefix = f"{PREFIX}{os.getpid()}-{abs(hash(blocks[0])) % 10_000}"
    running, results = [], []
    folder = tempfile.mkdtemp(prefix=PREFIX)
    try:
        network = Network(prefix, [*HOSTS, CLIENT])
        ip("link set bridge type bridge mcast_snooping 0", namespace=network.namespace("switch"))
        name_hosts(network)
        tools = make_tools(folder)
        for name in [*HOSTS, CLIENT]:
            os.mkdir(f"{folder}/{name}")
            with open(f"{folder}/{name}/secret", "w") as file:
                file.write("a secret that the reader has copied\n")
        for block in blocks:
            if block.words[-1] == "hosts":
                started = [start(network, name, folder, tools, block.body) for name in HOSTS]
                running += started
                output, failed = until_ready(started)
            else:
                output, failed = finish(start(network, CLIENT, folder, tools, f"set -euo pipefail\n{block.body}"))
            results.append((block, output, failed and f"block {block.number}: {failed}"))
    finally:
        for process in running:
            end(process)
        remove_namespaces(f"{prefix}-")
        for name in [*HOSTS, CLIENT]:
            shutil.rmtree(f"/etc/netns/{network.namespace(name)}", ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    return results


def leftovers():
    """Removes the namespaces of processes that are gone."""
    for name in namespaces(PREFIX):
        if not os.path.exists(f"/proc/{name.removeprefix(PREFIX).split('-')[0]}"):
            remove_namespaces(name)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)


def name_hosts(network):
    """A file of names for each host, which `ip netns exec` shows as /etc/hosts. There is no name server."""
    for name in [*HOSTS, CLIENT]:
        folder = f"/etc/netns/{network.namespace(name)}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/hosts", "w") as file:
            file.writelines(f"{network.address(one)} {one}\n" for one in [*HOSTS, CLIENT])
        with open(f"{folder}/nsswitch.conf", "w") as file:
            file.write("hosts: files\n")


def start(network, name, folder, tools, body):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ARTILLERY_")}
    environment["PATH"] = f"{tools}:{environment['PATH']}"
    command = ["ip", "netns", "exec", network.namespace(name), "unshare", "--uts", "bash", "-c", f"hostname {name}\n{body}"]
    output = open(f"{folder}/{name}.out", "w+")
    process = subprocess.Popen(command, env=environment, cwd=f"{folder}/{name}", stdin=subprocess.DEVNULL, stdout=output,
                               stderr=subprocess.STDOUT, start_new_session=True)
    process.output = output
    return process


def printed(process):
    process.output.flush()
    with open(process.output.name, errors="replace") as file:
        return file.read()


def until_ready(processes):
    deadline = time.monotonic() + LIMIT
    while not all('"ready":true' in printed(one) for one in processes):
        if time.monotonic() > deadline or any(one.poll() is not None for one in processes):
            return "\n".join(map(printed, processes)), "not all nodes are ready"
        time.sleep(0.1)
    return "\n".join(map(printed, processes)), None


def finish(process):
    try:
        code = process.wait(LIMIT)
        return printed(process), None if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        return printed(process), "it took too long"
    finally:
        end(process)


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    process.output.close()
