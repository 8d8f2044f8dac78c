from dataclasses import replace

from tidemill.core.process import ProcessId


def test_only_the_end_of_a_process_of_this_boot_can_be_known() -> None:
    own = ProcessId.own()
    assert (own.alive, own.has_ended_here) == (True, False)
    earlier = replace(own, start_ticks=own.start_ticks - 1)  # its number was given to this process
    assert (earlier.alive, earlier.has_ended_here) == (False, True)
    elsewhere = replace(own, boot_id="of another machine, or before the last boot of this one")
    assert (elsewhere.alive, elsewhere.has_ended_here) == (False, False)
