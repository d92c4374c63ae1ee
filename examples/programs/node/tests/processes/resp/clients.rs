//! Third-party clients: redis-cli, and the `redis` libraries for Python and for Node.

use std::{path::Path, process::Stdio, time::Duration};

use artillery_processes::{Cluster, text, token};
use tokio::{process::Command, time::timeout};

use super::{cluster, port};

/// Timeout for a program. Downloads of libraries depend on the network.
const FETCH: Duration = Duration::from_secs(240);

/// Runs a program. Returns its standard output; `None` if it is missing, timed out, or failed. A failure is printed.
async fn output(program: &str, args: &[&str], folder: Option<&Path>) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let output = timeout(FETCH, command.output()).await.ok()?.ok()?;
    if !output.status.success() {
        eprintln!("{program} {args:?}: {} {}", text(&output.stdout), text(&output.stderr));
        return None;
    }
    Some(text(&output.stdout))
}

#[tokio::test]
async fn redis_cli_works() {
    if output("redis-cli", &["--version"], None).await.is_none() {
        return eprintln!("SKIPPED: redis-cli isn't installed");
    }
    let cluster = cluster().await;
    let at = |node| port(&cluster, node).rsplit_once(':').unwrap().1.to_owned();
    let (head, tail) = (at(0), at(2));
    let cli =
        async |port: &str, args: &[&str]| output("redis-cli", &[&["-p", port], args].concat(), None).await.unwrap();
    assert_eq!(cli(&tail, &["SET", "greeting", "hello world"]).await, "OK\n");
    assert_eq!(cli(&head, &["GET", "greeting"]).await, "hello world\n");
    assert_eq!(cli(&head, &["-3", "INCR", "n"]).await, "1\n");
    assert_eq!(cli(&tail, &["-r", "5", "INCR", "n"]).await, "2\n3\n4\n5\n6\n");
    assert_eq!(cli(&tail, &["--scan", "--pattern", "gr*"]).await, "greeting\n");
    assert!(cli(&tail, &["INFO", "replication"]).await.contains("artillery_role:tail"));
    let pipe = format!("printf 'MULTI\\nINCR n\\nGET n\\nEXEC\\n' | redis-cli -p {tail}");
    assert_eq!(output("sh", &["-c", &pipe], None).await.unwrap(), "OK\nQUEUED\nQUEUED\n7\n7\n");
    let bench = ["-p", &tail, "-n", "2000", "-c", "10", "-P", "4", "-t", "set,get,incr,mset", "--csv"];
    let figures = output("redis-benchmark", &bench, None).await.unwrap();
    for name in ["SET", "GET", "INCR", "MSET (10 keys)"] {
        assert!(figures.contains(&format!("\"{name}\"")), "{figures}");
    }
}

const PYTHON: &str = r#"
import sys, redis
for protocol in (2, 3):
    r = redis.Redis(port=int(sys.argv[1]), protocol=protocol)
    k = "py%d" % protocol
    assert r.ping() and r.set(k, b"\x00\xff\r\n") and r.get(k) == b"\x00\xff\r\n"
    assert r.get("none") is None and r.exists(k) == 1 and r.strlen(k) == 4 and r.type(k) == b"string"
    assert r.incr(k + "n", 5) == 5 and r.decr(k + "n") == 4 and r.append(k, "x") == 5
    assert r.mset({k + "a": 1, k + "b": 2}) and r.mget(k + "a", k + "b", "none") == [b"1", b"2", None]
    assert r.set(k + "a", 3, nx=True) is None and r.set(k + "a", 3, xx=True) and r.getset(k + "a", 4) == b"3"
    assert r.set(k + "a", 5, get=True) == b"4" and r.getdel(k + "a") == b"5" and r.delete(k + "a", k + "b") == 1
    with r.pipeline() as p:
        p.watch(k + "n"); n = int(p.get(k + "n")); p.multi(); p.set(k + "n", n + 1); p.get(k + "n")
        assert p.execute() == [True, b"5"]
        p.watch(k + "n"); r.incr(k + "n"); p.multi(); p.set(k + "n", 0)
        try:
            p.execute(); assert False
        except redis.WatchError:
            pass
    with r.pipeline(transaction=False) as p:
        for i in range(100):
            p.set("%s:%d" % (k, i), i); p.get("%s:%d" % (k, i))
        got = p.execute(); assert got[1::2] == [str(i).encode() for i in range(100)]
    assert len(set(r.scan_iter(match=k + ":*"))) == 100
    assert r.info()["artillery_role"] in ("head", "middle", "tail") and r.dbsize() >= 100 and r.wait(2, 1000) == 2
    assert r.role()[0] in (b"master", "master") and r.config_get("save") and r.client_id() > 0
    assert r.set(k, 1, ex=100) and 0 < r.ttl(k) <= 100 and r.touch(k, "none") == 1
    assert r.expire(k, 50, xx=True) and not r.expire(k, 90, lt=True) and 0 < r.pttl(k) <= 50000
    assert r.getex(k, persist=True) == b"1" and r.ttl(k) == -1 and r.ttl("none") == -2
    assert r.incrbyfloat(k, 0.5) == 1.5 and r.setrange(k, 1, ",") == 3 and r.get(k) == b"1,5"
    assert r.rename(k, k + "moved") and r.copy(k + "moved", k) and len(r.keys(k + "move*")) == 1
    assert r.time()[0] > 1600000000 and r.setex(k, 1, "v") and r.expire(k, -1) and r.get(k) is None
    assert r.flushall() and r.keys() == []
print("fine", redis.__version__)
"#;

#[tokio::test]
async fn the_python_library_works() {
    let folder = std::env::temp_dir().join(format!("artillery-{}", token()));
    let (at, python) = (folder.to_str().unwrap().to_owned(), folder.join("bin/python"));
    let python = python.to_str().unwrap();
    let fetched = output("python3", &["-m", "venv", &at], None).await.is_some()
        && output(python, &["-m", "pip", "install", "-q", "redis"], None).await.is_some();
    if fetched {
        let cluster = Cluster::start(&["--resp", "127.0.0.1:0", "--allow-flush"]).await;
        let port = port(&cluster, 1);
        let done = output(python, &["-c", PYTHON, port.rsplit_once(':').unwrap().1], None).await;
        assert!(done.expect("the script failed").starts_with("fine"));
    } else {
        eprintln!("SKIPPED: python3, or its library redis, isn't installed and can't be downloaded");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

const DJANGO: &str = r#"
import sys
from django.conf import settings
cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:" + sys.argv[1]}
settings.configure(CACHES={"default": cache})
from django.core.cache import cache
cache.set("k", {"a": [1, 2]}, timeout=100)
assert cache.get("k") == {"a": [1, 2]} and cache.get("none", 7) == 7
assert cache.touch("k", 200) and not cache.touch("none", 200) and cache.touch("k", None)
assert not cache.add("k", 1) and cache.add("n", 1, timeout=100) and cache.incr("n") == 2
cache.set_many({"x": 1, "y": 2}, timeout=100)
assert cache.get_many(["x", "y", "z"]) == {"x": 1, "y": 2} and cache.get_or_set("z", 3) == 3
assert cache.delete("x") and cache.get("x") is None and cache.has_key("y")
cache.set("gone", 1, timeout=0)
assert cache.get("gone") is None
assert cache.clear() and cache.get("k") is None
print("fine")
"#;

#[tokio::test]
async fn the_cache_of_django_works() {
    let folder = std::env::temp_dir().join(format!("artillery-{}", token()));
    let (at, python) = (folder.to_str().unwrap().to_owned(), folder.join("bin/python"));
    let python = python.to_str().unwrap();
    let fetched = output("python3", &["-m", "venv", &at], None).await.is_some()
        && output(python, &["-m", "pip", "install", "-q", "redis", "django"], None).await.is_some();
    if fetched {
        let cluster = Cluster::start(&["--resp", "127.0.0.1:0", "--allow-flush"]).await;
        let port = port(&cluster, 1);
        let done = output(python, &["-c", DJANGO, port.rsplit_once(':').unwrap().1], None).await;
        assert!(done.expect("the script failed").starts_with("fine"));
    } else {
        eprintln!("SKIPPED: python3, or its libraries redis and django, aren't installed and can't be downloaded");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

const NODE: &str = r#"
const { createClient, WatchError } = require('redis');
const assert = require('node:assert');
(async () => {
  const c = createClient({ url: `redis://127.0.0.1:${process.argv[2]}` });
  await c.connect();
  assert.equal(await c.set('js', 'v'), 'OK');
  assert.equal(await c.get('js'), 'v');
  assert.equal(await c.get('none'), null);
  assert.equal(await c.incrBy('jsn', 7), 7);
  assert.deepEqual(await Promise.all([c.set('js', '1'), c.get('js'), c.incr('js'), c.get('js')]), ['OK', '1', 2, '2']);
  assert.deepEqual(await c.mGet(['js', 'none']), ['2', null]);
  assert.deepEqual(await c.multi().incr('jsn').get('jsn').exec(), [8, '8']);
  await c.watch('jsn');
  const other = c.duplicate(); await other.connect(); await other.incr('jsn'); other.destroy ? other.destroy() : other.disconnect();
  await assert.rejects(c.multi().set('jsn', '0').exec(), WatchError);
  assert.equal(await c.set('js', 'v', { EX: 100 }), 'OK');
  const left = await c.ttl('js');
  assert.ok(left > 0 && left <= 100, `${left}`);
  assert.equal(await c.sendCommand(['PERSIST', 'js']), 1);
  assert.equal(await c.ttl('js'), -1);
  assert.equal(await c.expire('js', 50), 1);
  assert.ok(await c.ttl('js') > 0);
  assert.equal(await c.flushAll(), 'OK');
  assert.equal(await c.get('js'), null);
  c.destroy ? c.destroy() : await c.disconnect();
  console.log('fine');
})().catch(error => { console.error(error); process.exit(1); });
"#;

#[tokio::test]
async fn the_node_library_works() {
    let folder = std::env::temp_dir().join(format!("artillery-{}", token()));
    std::fs::create_dir(&folder).unwrap();
    let install = ["install", "--silent", "--no-audit", "--no-fund", "redis"];
    if output("npm", &install, Some(&folder)).await.is_some() {
        let cluster = Cluster::start(&["--resp", "127.0.0.1:0", "--allow-flush"]).await;
        let port = port(&cluster, 2);
        let done = output("node", &["-e", NODE, "x", port.rsplit_once(':').unwrap().1], Some(&folder)).await;
        assert!(done.expect("the script failed").starts_with("fine"));
    } else {
        eprintln!("SKIPPED: npm, or the library redis for Node, isn't installed and can't be downloaded");
    }
    let _ = std::fs::remove_dir_all(&folder);
}
