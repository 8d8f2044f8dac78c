"""Topological orders to cut, and a fallback for graphs whose orders cannot be cut.

A slice of an order is a good partition if the order keeps related groups adjacent. Depth-first order finishes a branch
before it begins the next; trace order follows the model's code; the narrow order keeps few bytes alive. Each takes
O((units + edges) log units), the narrow one O(units x width).
"""

from collections.abc import Iterator, Sequence

from smdistributed.modelparallel.tensorflow.partitioning.groups import Groups, topological


def orders(groups: Groups, *, few: bool) -> list[tuple[int, ...]]:
    """Return different topological orders of the groups.

    Args:
        few: Whether to omit orders that seldom give the best cut.
    """
    found = [tuple(range(len(groups))), _depth_first(groups.predecessors, groups.successors)]
    found.append(_depth_first(groups.successors, groups.predecessors)[::-1])
    if not few:
        found.append(_depth_first(groups.predecessors, groups.successors, sign=1))
        found.append(_depth_first(groups.successors, groups.predecessors, sign=1)[::-1])
        found.append(_narrow(groups))
    return list(dict.fromkeys(found))


def _depth_first(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], sign: int = -1) -> tuple[int, ...]:
    """Continue with the group that became ready last; among several, the lowest (`sign` -1) or highest number."""
    waiting = [len(inputs) for inputs in before]
    stack = sorted((i for i, inputs in enumerate(waiting) if not inputs), key=lambda i: sign * i)
    order = []
    while stack:
        here = stack.pop()
        order.append(here)
        ready = []
        for there in after[here]:
            waiting[there] -= 1
            if not waiting[there]:
                ready.append(there)
        stack.extend(sorted(ready, key=lambda i: sign * i))
    return tuple(order)


def _narrow(groups: Groups) -> tuple[int, ...]:
    """Continue with the ready group that adds the fewest bytes to the tensors still in use, or frees the most."""
    made: list[list[int]] = [[] for _ in range(len(groups))]
    used: list[list[int]] = [[] for _ in range(len(groups))]
    left = [len(tensor.consumers) for tensor in groups.tensors]
    for i, tensor in enumerate(groups.tensors):
        made[tensor.producer].append(i)
        for consumer in tensor.consumers:
            used[consumer].append(i)
    waiting = [len(inputs) for inputs in groups.predecessors]
    ready = {i for i, inputs in enumerate(waiting) if not inputs}
    order = []

    def growth(group: int) -> tuple[int, int]:
        freed = sum(groups.tensors[i].bytes for i in used[group] if left[i] == 1)
        return sum(groups.tensors[i].bytes for i in made[group]) - freed, group

    while ready:
        here = min(ready, key=growth)
        ready.remove(here)
        order.append(here)
        for i in used[here]:
            left[i] -= 1
        for there in groups.successors[here]:
            waiting[there] -= 1
            if not waiting[there]:
                ready.add(there)
    return tuple(order)


def contraction(groups: Groups, weights: Sequence[int], partitions: int) -> tuple[int, ...] | None:
    """Find connected partitions without a cycle between them, for any connected graph; balance is not guaranteed.

    Of all edges into a cluster, the edge from the predecessor that is last in a topological order can be contracted
    without closing a cycle: any other path would pass through a still later predecessor. So a connected graph can be
    contracted to any number of clusters. O(units x (units + edges)), for the rare graph whose orders cannot be cut.

    Returns:
        Partition per group, or None if the forward edges do not connect the graph.
    """
    cluster = list(range(len(groups)))
    heavy = list(weights)
    for _ in range(len(groups) - partitions):
        place = {c: i for i, c in enumerate(_quotient(groups, cluster))}
        latest: dict[int, int] = {}
        for source, target in _links(groups, cluster):
            if target not in latest or place[source] > place[latest[target]]:
                latest[target] = source
        if not latest:
            return None
        target = min(latest, key=lambda c: (heavy[c] + heavy[latest[c]], place[c]))
        source = latest[target]
        heavy[source] += heavy[target]
        cluster = [source if c == target else c for c in cluster]
    number = {c: i for i, c in enumerate(_quotient(groups, cluster))}
    return tuple(number[c] for c in cluster)


def _links(groups: Groups, cluster: Sequence[int]) -> Iterator[tuple[int, int]]:
    for source, targets in enumerate(groups.successors):
        for target in targets:
            if cluster[source] != cluster[target]:
                yield cluster[source], cluster[target]


def _quotient(groups: Groups, cluster: Sequence[int]) -> list[int]:
    """Return the clusters in a topological order."""
    return topological({c: c for c in cluster}, set(_links(groups, cluster)))
