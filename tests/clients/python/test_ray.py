"""`cellblock.ray` on local clusters of several node processes."""

import os
import threading
import time
import unittest

os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import ray
from ray.cluster_utils import Cluster as LocalCluster
from ray.experimental.sandbox.backend.base import SandboxStatus
from ray.experimental.sandbox.exceptions import (
    SandboxCreationError,
    SandboxNotFoundError,
    SandboxTimeoutError,
)

import cellblock
from cellblock.ray import Cluster, NodeLost, SandboxRuntime

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


class Clusters(unittest.TestCase):
    def start(self, nodes, **options):
        """A cluster of nodes, and one of servers on them."""
        local = LocalCluster(initialize_head=True, head_node_args=NODE)
        self.addCleanup(local.shutdown)
        self.workers = [local.add_node(**NODE) for _ in range(nodes - 1)]
        local.wait_for_nodes()
        ray.init(address=local.address, log_to_driver=False)
        self.addCleanup(ray.shutdown)
        cluster = Cluster(rootfs="host", **options)
        self.addCleanup(cluster.close)
        self.local = local
        return cluster

    def lose(self, cluster, node):
        """Removes a node once all of its room is used."""
        member = cluster._members[node.node_id]

        def remove():
            while member.busy < member.room:
                time.sleep(0.05)
            self.local.remove_node(node)

        thread = threading.Thread(target=remove)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_one_node(self):
        cluster = self.start(1, max_cells=2, queue_wait="100ms")
        self.assertEqual(cluster.run("6 * 7").value, "42")
        # More than fit at once, in the order of the codes.
        codes = [f"import time\ntime.sleep({(5 - n) / 50})\n{n}" for n in range(6)]
        self.assertEqual([run.value for run in cluster.map(codes)], list("012345"))
        # Contexts take the room of runs: the runs wait, without an error.
        with cluster.context() as one, cluster.context() as two:
            one.run("x = 1")
            self.assertEqual(one.run("x").value, "1")
            self.assertFalse(two.run("x").ok)
        self.assertEqual(cluster.run("1").value, "1")
        # Code that fails gives a run. Errors are raised, or returned in the place of runs.
        self.assertEqual([run.outcome for run in cluster.map(["1", "1 / 0"])], ["ok", "error"])
        mapped = cluster.map(["1"], "none", return_exceptions=True)
        self.assertIsInstance(next(mapped), (cellblock.CellblockError, cellblock.Run))
        with self.assertRaises(cellblock.BadParams):
            list(cluster.map(["1"], limits={"no such": 1}))

    def test_only_as_many_codes_are_taken_as_there_is_room_for(self):
        cluster = self.start(1, max_cells=2)
        taken = []

        def codes():
            for number in range(20):
                taken.append(number)
                yield str(number)

        mapped = cluster.map(codes())
        next(mapped)
        time.sleep(0.5)
        self.assertLessEqual(len(taken), 4)
        self.assertEqual(len(list(mapped)), 19)

    def test_codes_that_nobody_waits_for_leave_their_room(self):
        cluster = self.start(1, max_cells=2, queue_wait="100ms")
        endless = "while True: pass"
        # A caller that goes away, as often as there is room, and an iterator that fails.
        for _ in range(2):
            mapped = cluster.map(["1", endless])
            next(mapped)
            mapped.close()
            self.assertEqual([member.busy for member in cluster._members.values()], [0])

        def codes():
            yield "1"
            yield endless
            raise KeyError("no more")

        with self.assertRaises(KeyError):
            list(cluster.map(codes()))
        self.assertEqual([run.value for run in cluster.map(["1", "2", "3"])], list("123"))

    def test_a_context_is_deleted_once(self):
        cluster = self.start(1, max_cells=2)
        with cluster.context() as context:
            context.delete()
            context.delete()
            with self.assertRaises(cellblock.NotFound):
                context.run("1")
        self.assertEqual([member.busy for member in cluster._members.values()], [0])
        self.assertEqual(cluster.run("1").value, "1")

    def test_contexts_are_not_created_on_a_lost_node(self):
        cluster = self.start(2, max_cells=2)
        [lost] = self.workers
        self.local.remove_node(lost)
        with cluster.context() as one, cluster.context() as two:
            self.assertEqual([one.run("1").value, two.run("2").value], ["1", "2"])
            self.assertNotIn(lost.node_id, (one.node, two.node))
        self.assertEqual(len(cluster.nodes), 1)

    def test_two_nodes_share_the_work_and_contexts_stay(self):
        cluster = self.start(2, max_cells=4)
        self.assertEqual(len(cluster.nodes), 2)
        with cluster.context() as one, cluster.context() as two:
            self.assertNotEqual(one.node, two.node)
            one.run("x = 1"), two.run("x = 2")
            self.assertEqual([one.run("x").value, two.run("x").value], ["1", "2"])
        self.assertEqual(len(list(cluster.map(["1"] * 16))), 16)

    def test_a_lost_node(self):
        cluster = self.start(4, max_cells=2)
        lost = self.workers[0]
        contexts = [cluster.context() for _ in cluster.nodes]
        mine = next(one for one in contexts if one.node == lost.node_id)
        mine.run("x = 1")
        for one in contexts:
            if one is not mine:
                one.delete()
        codes = [f"import time\ntime.sleep(5)\n{n}" for n in range(8)]
        losing = self.lose(cluster, lost)
        self.assertEqual([run.value for run in cluster.map(codes)], list("01234567"))
        losing.join()
        self.assertEqual(len(cluster.nodes), 3)
        with self.assertRaises(NodeLost):
            mine.run("x")

    def test_at_most_once(self):
        cluster = self.start(2, max_cells=2)
        [lost] = self.workers
        codes = [f"import time\ntime.sleep(5)\n{n}" for n in range(4)]
        mapped = cluster.map(codes, at_most_once=True, return_exceptions=True)
        self.lose(cluster, lost)
        outcomes = list(mapped)
        kinds = {type(outcome) for outcome in outcomes}
        self.assertEqual(kinds, {cellblock.Run, NodeLost}, outcomes)
        self.assertEqual(len(outcomes), 4)


class Runtimes(unittest.TestCase):
    """Ray's interface of sandboxes, without a cluster."""

    def setUp(self):
        self.runtime = SandboxRuntime()
        self.addCleanup(self.runtime.close)

    def test_a_sandbox_has_commands_and_files(self):
        runtime = self.runtime
        box = runtime.create(image="host", memory="256Mi", env={"A": "b"}, workdir="/tmp/w")
        self.assertEqual(runtime.get_status(box), SandboxStatus.RUNNING)
        result = runtime.exec(box, "pwd; echo $A; exit 3")
        self.assertEqual((result.exit_code, result.stdout), (3, "/tmp/w\nb\n"))
        runtime.write_file(box, "/tmp/w/f", b"\0")
        runtime.backend.write_file(box, "/tmp/w/f", "x", append=True)
        self.assertEqual(runtime.read_file(box, "/tmp/w/f"), b"\0x")
        with self.assertRaises(SandboxTimeoutError):
            runtime.exec(box, ["sleep", "9"], timeout=0.5)
        runtime.delete(box)
        self.assertEqual(runtime.get_status(box), SandboxStatus.TERMINATED)
        with self.assertRaises(SandboxNotFoundError):
            runtime.exec(box, "true")

    def test_what_a_cell_cannot_be_is_an_error(self):
        wanted = ({"capabilities": ["CAP_CHOWN"]}, {"readonly": False}, {"network": "host"},
                  {"network": "public"}, {"image": "no-such-rootfs"}, {"memory": "1000Gi"})
        for options in wanted:
            with self.subTest(options), self.assertRaises(SandboxCreationError):
                self.runtime.create(**{"image": "host", **options})


if __name__ == "__main__":
    unittest.main()
