"""Other people's mechanisms beside ours, on the same data and seeds: ``make rivals``.

Each module holds one mechanism, written from its publication, and says what it guarantees. All of
them add floating-point noise from numpy to floating-point sums (Mironov 2012): good for comparing
errors, not for releasing anything. The neighbouring relation is replace-one everywhere: where a
publication's constant is for another relation, or too small, the corrected one is used.
"""
