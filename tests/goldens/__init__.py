"""Releases under fixed keys, ids and times, and digests of everything that they make.

A change of the code's layout must change none of it. ``python -m goldens --out FILE`` records a
checkout; ``python -m goldens compare OLD NEW`` records two and says where they differ.
"""
