"""Ranks exchange Python objects."""

import ranks
import smdistributed.modelparallel.tensorflow as smp


def standing():
    return {
        "rank": smp.rank(),
        "size": smp.size(),
        "local": (smp.local_rank(), smp.local_size()),
        "mp": (smp.mp_rank(), smp.mp_size(), smp.get_mp_group()),
        "dp": (smp.dp_rank(), smp.dp_size(), smp.get_dp_group()),
        "pp": (smp.pp_rank(), smp.pp_size()),
        "rdp": (smp.rdp_rank(), smp.rdp_size()),
        "tp": (smp.tp_rank(), smp.tp_size()),
        "initialized": smp.core.initialized,
    }


def test_each_rank_knows_its_place_in_a_spread_job():
    places = ranks.run(4, standing, config={"partitions": 2, "placement_strategy": "spread"})
    assert [place["rank"] for place in places] == [0, 1, 2, 3]
    assert [place["mp"] for place in places] == [(0, 2, [0, 2]), (0, 2, [1, 3]), (1, 2, [0, 2]), (1, 2, [1, 3])]
    assert [place["dp"] for place in places] == [(0, 2, [0, 1]), (1, 2, [0, 1]), (0, 2, [2, 3]), (1, 2, [2, 3])]
    for place in places:
        assert place["pp"] == place["mp"][:2] and place["rdp"] == place["dp"][:2] and place["tp"] == (0, 1)
        assert place["size"] == 4 and place["local"] == (place["rank"], 4) and place["initialized"] is True


def gather_in_all_groups():
    value = {"rank": smp.rank(), "data": b"x" * smp.rank()}
    return [smp.allgather(value, group) for group in (smp.WORLD, smp.MP_GROUP, smp.DP_GROUP)]


def test_allgather_is_indexed_by_rank_in_the_group():
    gathered = ranks.run(4, gather_in_all_groups, config={"partitions": 2})
    for rank, (world, mp, dp) in enumerate(gathered):
        assert [value["rank"] for value in world] == [0, 1, 2, 3]
        assert [value["rank"] for value in mp] == [[0, 1], [0, 1], [2, 3], [2, 3]][rank]
        assert [value["rank"] for value in dp] == [[0, 2], [1, 3], [0, 2], [1, 3]][rank]
        assert world[3]["data"] == b"xxx"
