"""smp.step: cutting a batch into microbatches, and what comes back."""
