"""A runner of two groups of one host each: threads of this process that meet over the loopback interface."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from batchscale.cluster.description import Cluster, Timeouts
from batchscale.cluster.groups import Group
from batchscale.cluster.meeting import host_meeting, join_meeting
from batchscale.cluster.peers import Peers
from batchscale.workers.group_lead import GroupLead
from batchscale.workers.groups import GroupRunner


def _never():
    return False


def _end(_text, _code):
    """A process that ends: here it is a thread, which ends by itself."""


def _meet(cluster):
    return Peers(cluster, (host_meeting if cluster.is_chief else join_meeting)(cluster, {}), _end)


def connect_all(count):
    """The peers of so many processes, in their order."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    names = tuple(f"host-{place}" for place in range(count))
    described = [Cluster(address, count, place, "test", names, Timeouts(10.0, 10.0)) for place in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(_meet, described))


def make_group_runner(setup):
    """Both groups take their engines from the setup; closing the runner ends the other one as well."""
    chief, other = connect_all(2)
    lead = GroupLead(other, Group(1, 2, 1, None), setup, _never)

    def serve():
        lead.serve()
        if not other.ended:
            other.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    runner = GroupRunner(chief, Group(0, 2, 1, None), setup, _never, _never)
    close = runner.close

    def close_both():
        close()
        chief.close()
        thread.join(10)

    runner.close = close_both
    return runner
