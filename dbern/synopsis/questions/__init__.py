"""Questions that one release of bins answers: shares, quantiles, means, each with an interval.

A question is a file, a subclass of `question.Question`. All are made of the same parts, in the
order in which a weight becomes an answer:

1. `regions` and `weight_batches` say which rows a question weighs; `envelopes` has splines around
   these weights.
2. `noisy_measure` has the released bins, and functionals of them with their noise; `split_measure`
   has those of the rows in two parts.
3. `interval` denies quotients of two functionals, by `linear_family`. `product_intervals` has those
   of too many weights to lay out, `undenied_points` points of an axis, and `polynomial_span`
   products of means.
4. `band` holds values and ends, `answers` prints them.
"""

from dbern.synopsis.questions.answers import Answer
from dbern.synopsis.questions.distribution import Distribution

__all__ = ["Answer", "Distribution"]
