"""The choice between the variants of a step.

Paired times decide (`trials`), if a training is long enough (`payback`); later jobs reuse it (`decisions`,
`earlier_jobs`).
"""
