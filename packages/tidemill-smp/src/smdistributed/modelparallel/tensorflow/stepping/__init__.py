"""`smp.step`: splits batches into microbatches, runs the step, and packs its results."""
