"""A bridged network in namespaces for `addresses`, and clients in it."""
import concurrent.futures
import ctypes
import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
import time

SWITCH = "artillery-addr-"  # how the names of namespaces begin; the id of the process that made them follows
CLONE_NEWNET = 0x40000000
PERIOD = 0.03  # seconds between two operations of a client
TIMEOUT = 0.5  # seconds for one operation


def missing():
    """What this machine lacks, if anything."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    return None if shutil.which("ip") else "there is no iproute2 (`ip`)"


def ip(*lines, namespace=None):
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{done.stderr.strip()}, at one of {lines}")


def namespaces(prefix):
    return [name for name in os.listdir("/run/netns") if name.startswith(prefix)] if os.path.isdir("/run/netns") else []


def remove_namespaces(prefix):
    for name in namespaces(prefix):
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def leftovers():
    """Removes the namespaces of processes that are gone."""
    for name in namespaces(SWITCH):
        pid = name.removeprefix(SWITCH).split("-")[0]
        if not os.path.exists(f"/proc/{pid}"):
            remove_namespaces(name)


def enter(namespace):
    """Moves this thread into a namespace."""
    with open(f"/run/netns/{namespace}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"no way into {namespace}")


class Network:
    """A bridge, and a namespace with an address for each name. The caller removes the namespaces."""

    def __init__(self, prefix, names):
        self.prefix, self.names = prefix, names
        self.hosts = {name: 1 + place for place, name in enumerate(names)}
        switch = self.namespace("switch")
        ip(*(f"netns add {self.namespace(name)}" for name in ["switch", *names]))
        ip("link set lo up", "link add name bridge type bridge", "link set bridge up", "addr add 10.79.0.254/24 dev bridge",
           namespace=switch)
        for name in names:
            ip(f"link add name to-{name} type veth peer name eth0 netns {self.namespace(name)}", f"link set to-{name} master bridge up",
               namespace=switch)
            ip("link set lo up", "link set eth0 up", *self.give(name), namespace=self.namespace(name))

    def namespace(self, name):
        return f"{self.prefix}-{name}"

    def address(self, name):
        return f"10.79.0.{self.hosts[name]}"

    def give(self, name):
        # The default route tells a node that listens on all addresses which is its own.
        return f"addr add {self.address(name)}/24 dev eth0", "route replace default via 10.79.0.254"

    def readdress(self, name):
        """Takes an address away, and gives another one."""
        taken = f"addr del {self.address(name)}/24 dev eth0"
        self.hosts[name] += 100
        ip(taken, *self.give(name), namespace=self.namespace(name))


def inside(namespace, call):
    """The result of a call in a namespace."""
    def run():
        enter(namespace)
        return call()

    # A thread of its own: what it enters, only it is in.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def http_status(namespace):
    """What a node reports; None if it doesn't answer."""
    def get():
        connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=2)
        try:
            connection.request("GET", "/status")
            return json.load(connection.getresponse())
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()
    return inside(namespace, get)


class Redis:
    """A connection by the Redis protocol, as far as SET and GET need it."""

    def __init__(self, timeout):
        self.socket = socket.create_connection(("127.0.0.1", 6379), timeout=timeout)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def send(self, *words):
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))

    def answer(self):
        """True for OK, text for a value, None for an absent one. Raises OSError otherwise."""
        line = self.file.readline()
        if line == b"+OK\r\n":
            return True
        if line == b"$-1\r\n":
            return None
        if line.startswith(b"$"):
            return self.file.read(int(line[1:]) + 2)[:-2].decode()
        raise OSError(line.decode(errors="replace") or "the connection was closed")

    def close(self):
        self.file.close()
        self.socket.close()


class Client:
    """Writes at a node, and reads there what it has written, until it is stopped."""

    def __init__(self, namespace, name):
        self.namespace, self.name = namespace, name
        self.acknowledged, self.wrong = {}, []
        self.written, self.read = [], []  # when an operation that succeeded had begun
        self.number = 0
        self.over = threading.Event()
        # A write that hangs keeps no read waiting.
        self.threads = [threading.Thread(target=self.run, args=[operate], daemon=True) for operate in (self.write, self.recall)]
        for thread in self.threads:
            thread.start()

    def run(self, operate):
        enter(self.namespace)
        redis = None
        while not self.over.wait(PERIOD):
            try:
                redis = redis or Redis(TIMEOUT)
                operate(redis)
            except OSError as error:
                # After an error that the node reports the connection is as good as before.
                if redis and not str(error).startswith("-"):
                    redis.close()
                    redis = None

    def write(self, redis):
        self.number += 1
        began, key, value = time.monotonic(), f"{self.name}/{self.number}", f"value {self.number} of {self.name}"
        if redis.ask("SET", key, value) is True:
            self.acknowledged[key] = value
            self.written.append(began)

    def recall(self, redis):
        """Reads the write that was acknowledged last."""
        if not self.written:
            return
        began, (key, value) = time.monotonic(), list(self.acknowledged.items())[-1]
        found = redis.ask("GET", key)
        self.read.append(began)
        if found != value:
            self.wrong.append(f"{key} is {found!r}")

    def gaps(self, since, until):
        """The longest times without a write and without a read that succeeded."""
        def longest(moments):
            moments = [since, *(moment for moment in moments if moment > since), until]
            return max(after - before for before, after in zip(moments, moments[1:]))
        return longest(list(self.written)), longest(list(self.read))

    def served_since(self, moment):
        return bool(self.written and self.read) and min(self.written[-1], self.read[-1]) > moment

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def lost(self, written, limit):
        """The keys of these that the node doesn't have with their values. Reads that fail are tried again for so many seconds."""
        deadline = time.monotonic() + limit

        def reads(redis, key):
            while True:
                try:
                    return redis.ask("GET", key)
                except OSError as error:
                    if time.monotonic() > deadline or not str(error).startswith("-"):
                        raise

        def read():
            redis = Redis(limit)
            try:
                return [key for key, value in written.items() if reads(redis, key) != value]
            finally:
                redis.close()
        return inside(self.namespace, read)
