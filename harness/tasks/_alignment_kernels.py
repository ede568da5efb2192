"""Compiled inner loops of `harness.tasks.alignment`. Import this module late: importing numba takes a while.

N texts are stored as the ids of all their words, int32 `words`, and as int64 `starts` [N + 1]. Text r is
`words[starts[r]:starts[r + 1]]`. Positions in a text count from 0. A place is a position in the source.
"""

from __future__ import annotations

import numpy as np

from retrievers.compiling import helper, kernel

TP, FP, FN, FR = 1, 2, 3, 4  # verdicts on a place; 0: neither reference nor prediction has an edit there


@kernel
def align(source, source_starts, target, target_starts):
    """Return the position of the target word that each source word matches, int32 [source words]; -1 for no match."""
    matched = np.full(len(source), -1, np.int32)
    for r in range(len(source_starts) - 1):
        first, end = source_starts[r], source_starts[r + 1]
        _match(source[first:end], target[target_starts[r] : target_starts[r + 1]], matched[first:end])
    return matched


@helper
def _match(source, target, matched):
    head, n, m = 0, len(source), len(target)
    while head < min(n, m) and source[head] == target[head]:
        matched[head] = head
        head += 1
    while head < min(n, m) and source[n - 1] == target[m - 1]:
        n, m = n - 1, m - 1
        matched[n] = m
    if head < min(n, m):
        _walk(source[head:n], target[head:m], matched[head:n], head)


@helper
def _walk(source, target, matched, shift):
    """Fill Wagner and Fischer's table from the end, keeping one row of lengths, and one bit for each cell.

    The bit of (i, j) is set if the longest common subsequence of source[i:] and target[j:] does not need source word i.
    """
    n, m = len(source), len(target)
    longest = np.zeros(m + 1, np.int32)  # index j: length of a longest common subsequence of source[i:] and target[j:]
    leave_out = np.zeros((n, (m + 7) // 8), np.uint8)
    for i in range(n - 1, -1, -1):
        after_both = np.int32(0)
        for j in range(m - 1, -1, -1):
            after_source = longest[j]
            if source[i] == target[j]:
                longest[j] = after_both + 1
            elif after_source >= longest[j + 1]:
                leave_out[i, j >> 3] |= np.uint8(1 << (j & 7))
            else:
                longest[j] = longest[j + 1]
            after_both = after_source
    i = j = 0
    while i < n and j < m:
        if source[i] == target[j]:
            matched[i] = shift + j
            i, j = i + 1, j + 1
        elif leave_out[i, j >> 3] >> (j & 7) & 1:
            i += 1
        else:
            j += 1


@kernel
def place_edits(matched, source_starts, target_starts, merge_gap):
    """Return for each word the place of the edit that changes it, or -1: int32 [source words], int32 [target words].

    merge_gap: under scheme `span`, changes that begin at most this many words apart share an edit. -1: scheme `token`.
    """
    of_source = np.full(len(matched), -1, np.int32)
    of_target = np.full(target_starts[-1], -1, np.int32)
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
            for k in range(j, until):
                of_target[into + k] = min(i + k - j, max(i, kept - 1)) if merge_gap < 0 else here
            i, j = kept + 1, until + 1
    return of_source, of_target


@kernel
def judge_places(
    starts, wanted_source, wanted, wanted_starts, wanted_at, made_source, made, made_starts, made_at, merge_gap
):
    """Return the verdict on each place, int8 [source words + N]. The first place of text r is at `starts[r] + r`.

    wanted, made: the words of references and of predictions. wanted_starts, made_starts: where each text begins.
    wanted_source, made_source: for each source word, the place of the edit that changes it; -1 without an edit.
    wanted_at, made_at: for each target word, the place of the edit that adds it; -1 without an edit.
    """
    verdicts = np.zeros(starts[-1] + len(starts) - 1, np.int8)
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
    return verdicts


def _warm():
    """Compile all kernels."""
    words, starts = np.zeros(1, np.int32), np.arange(2)
    of_source, of_target = place_edits(align(words, starts, words, starts), starts, starts, -1)
    side = of_source, words, starts, of_target
    judge_places(starts, *side, *side, -1)
