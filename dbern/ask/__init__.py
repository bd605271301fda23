"""Questions that one release of bins answers: shares, quantiles, means, each with an interval.

A question is a subclass of `question.Question`. All are made of the same parts, in the order in
which a weight becomes an answer:

1. `regions` and `weights` say which rows a question weighs; `splines`, `kernel_envelopes` and
   `polygon_envelopes` have splines around these weights.
2. `bins` has the released bins, and functionals of them with their noise; of the rows in two parts,
   too.
3. `quotients` denies quotients of two functionals; `moments` has products of means.
4. `answer` holds values and ends, and prints them.
"""
