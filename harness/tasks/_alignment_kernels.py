"""Compiled inner loops of `harness.tasks.alignment`. Import this module late: importing numba takes a while.

N texts are stored as the ids of all their words, int32 `words`, and as int64 `starts` [N + 1]. Text r is
`words[starts[r]:starts[r + 1]]`. Positions in a text count from 0. A place is a position in the source.
"""

from __future__ import annotations

import numpy as np

from retrievers.compiling import helper, kernel

TP, FP, FN, FR = 1, 2, 3, 4  # verdicts on a place; 0: neither reference nor prediction has an edit there


@kernel
def align(source, source_starts, target, target_starts, matched, longest, bits, text):
    """Set `matched` of the texts from number `text` on: the position of the target word that each source word matches.

    matched: int32 [source words], -1 for no match. longest: int32, longer than any target. bits: uint8, 8 for a byte.
    Return the number of texts, and 0. If `bits` are too few, return the number of a text, and the bytes that it needs.
    """
    for r in range(text, len(source_starts) - 1):
        first, last, begin, end = source_starts[r], source_starts[r + 1], target_starts[r], target_starts[r + 1]
        while first < last and begin < end and source[first] == target[begin]:
            matched[first] = begin - target_starts[r]
            first, begin = first + 1, begin + 1
        while first < last and begin < end and source[last - 1] == target[end - 1]:
            last, end = last - 1, end - 1
            matched[last] = end - target_starts[r]
        needed = (last - first) * ((end - begin + 7) >> 3)
        if needed > len(bits):
            return r, needed
        if needed:
            _walk(source, target, matched, (first, last, begin, end), target_starts[r], longest, bits)
    return len(source_starts) - 1, 0


@helper(inline="always")
def _walk(source, target, matched, differing, start, longest, bits):
    """Fill Wagner and Fischer's table from the end, keeping one row of lengths, and one bit for each cell.

    The bit of (i, j) is set if the longest common subsequence of source[i:] and target[j:] does not need source word i.
    longest[j]: length of a longest common subsequence of source[i:] and target[j:].
    differing: (first source word, last + 1, first target word, last + 1). start: the text's first target word.
    """
    first, last, begin, end = differing
    m, width = end - begin, (end - begin + 7) >> 3
    for j in range(m + 1):
        longest[j] = 0
    for i in range((last - first) * width):
        bits[i] = 0
    for i in range(last - 1, first - 1, -1):
        word, row, after_both = source[i], (i - first) * width, np.int32(0)
        for j in range(m - 1, -1, -1):
            after_source = longest[j]
            if word == target[begin + j]:
                longest[j] = after_both + 1
            elif after_source >= longest[j + 1]:
                bits[row + (j >> 3)] |= np.uint8(1 << (j & 7))
            else:
                longest[j] = longest[j + 1]
            after_both = after_source
    i, j = first, 0
    while i < last and j < m:
        if source[i] == target[begin + j]:
            matched[i] = begin + j - start
            i, j = i + 1, j + 1
        elif bits[(i - first) * width + (j >> 3)] >> (j & 7) & 1:
            i += 1
        else:
            j += 1


@kernel
def place_edits(matched, source_starts, target_starts, merge_gap, of_source, of_target):
    """Set the place of the edit that changes each word: int32 [source words], int32 [target words], initially -1.

    merge_gap: under scheme `span`, changes that begin at most this many words apart share an edit. -1: scheme `token`.
    """
    for r in range(len(source_starts) - 1):
        first, into = source_starts[r], target_starts[r]
        n, m = source_starts[r + 1] - first, target_starts[r + 1] - into
        i = j = 0
        last = here = -merge_gap - 1  # last: start of the last change; here: start of the edit with this change
        while i <= n:
            kept = i  # the next matched word, or the end
            while kept < n and matched[first + kept] < 0:
                kept += 1
            until = matched[first + kept] if kept < n else m
            if merge_gap >= 0 and (i < kept or j < until):
                here, last = (here if i - last <= merge_gap else i), i
            for k in range(i, kept):
                of_source[first + k] = k if merge_gap < 0 else here
            most = kept - 1 if kept > i else i
            for k in range(j, until):
                at = i + k - j if i + k - j < most else most
                of_target[into + k] = at if merge_gap < 0 else here
            i, j = kept + 1, until + 1


@kernel
def judge_places(
    starts, wanted_source, wanted, wanted_starts, wanted_at, made_source, made, made_starts, made_at, verdicts
):
    """Set the verdict on each place, int8 [source words + N], initially 0. Text r has its first at `starts[r] + r`.

    wanted, made: the words of references and of predictions. wanted_starts, made_starts: where each text begins.
    wanted_source, made_source: for each source word, the place of the edit that changes it; -1 without an edit.
    wanted_at, made_at: for each target word, the place of the edit that adds it; -1 without an edit.
    """
    for r in range(len(starts) - 1):
        first, n = starts[r], starts[r + 1] - starts[r]
        w, m = wanted_starts[r], made_starts[r]
        for p in range(n + 1):
            is_wanted = p < n and wanted_source[first + p] == p
            is_made = p < n and made_source[first + p] == p
            same = True
            while True:  # for each word that the reference or the prediction puts here
                while w < wanted_starts[r + 1] and wanted_at[w] < 0:
                    w += 1
                while m < made_starts[r + 1] and made_at[m] < 0:
                    m += 1
                in_wanted = w < wanted_starts[r + 1] and wanted_at[w] == p
                in_made = m < made_starts[r + 1] and made_at[m] == p
                if not in_wanted and not in_made:
                    break
                same &= in_wanted and in_made and wanted[w] == made[m]
                is_wanted |= in_wanted
                is_made |= in_made
                w, m = w + in_wanted, m + in_made
            if is_wanted and is_made:
                verdicts[first + r + p] = TP if same else FP
            elif is_wanted:
                verdicts[first + r + p] = FN
            elif is_made:
                verdicts[first + r + p] = FR


def _warm():
    """Compile all kernels."""
    words, starts, edits = np.zeros(1, np.int32), np.arange(2), np.zeros((2, 1), np.int32)
    align(words, starts, words, starts, *np.zeros((2, 2), np.int32), np.zeros(1, np.uint8), 0)
    place_edits(words, starts, starts, -1, *edits)
    side = edits[0], words, starts, edits[1]
    judge_places(starts, *side, *side, np.zeros(2, np.int8))
