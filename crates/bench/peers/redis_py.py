"""redis-py's Lock as a contestant: one task through the synchronous client, several through asyncio."""

import asyncio
import json
import sys
import time

import redis
import redis.asyncio

LEASE = 600


def say(**fields):
    print(json.dumps(fields), flush=True)


def key(number):
    return f"payment:order-{number:07}"


def pairs_of_one(client, seconds):
    lock = client.lock(key(0), timeout=30)
    times = []
    until = time.perf_counter() + seconds
    while (started := time.perf_counter()) < until:
        if not lock.acquire(blocking=False):
            raise SystemExit("held")
        lock.release()
        times.append(time.perf_counter() - started)
    return times


async def connect(url):
    # By default a 101st connection would be an error.
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=64, timeout=None)
    return redis.asyncio.Redis(connection_pool=pool)


async def pairs_of_many(client, tasks, seconds):
    times = []
    until = time.perf_counter() + seconds

    async def one(number):
        lock = client.lock(key(number), timeout=30)
        while (started := time.perf_counter()) < until:
            if not await lock.acquire(blocking=False):
                raise SystemExit("held")
            await lock.release()
            times.append(time.perf_counter() - started)

    await asyncio.gather(*(one(number) for number in range(tasks)))
    return times


def main():
    url = sys.argv[1]
    client = redis.from_url(url)
    client.ping()
    baton = client.lock("baton", timeout=LEASE)
    tasks_of = asyncio.Runner()
    many = tasks_of.run(connect(url))
    say(version=f"redis-py {redis.__version__}, Python {sys.version.split()[0]}")
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "pairs":
            tasks, millis = map(int, numbers)
            started = time.perf_counter()
            seconds = millis / 1000
            times = pairs_of_one(client, seconds) if tasks == 1 else tasks_of.run(pairs_of_many(many, tasks, seconds))
            times.sort()
            took = time.perf_counter() - started
            say(pairs=len(times), seconds=took, p50_us=times[len(times) // 2] * 1e6)
        elif word == "take":
            baton.acquire()
            say(at_ns=time.time_ns())
        elif word == "wait":
            say(waiting=True)
            baton.acquire()
            say(at_ns=time.time_ns())
        elif word == "release":
            started = time.time_ns()
            baton.release()
            say(at_ns=started)
        elif word == "hold":
            for number in range(*map(int, numbers)):
                client.lock(key(number), timeout=LEASE).acquire(blocking=False)
            say(held=True)


main()
