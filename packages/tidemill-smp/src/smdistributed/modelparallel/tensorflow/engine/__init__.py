"""From the body of a step to the ops that one rank runs: trace, assign, cut into segments, schedule, emit."""
