"""Statistics of upper and lower case and final punctuation in the training sources."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from unicodedata import category

from ..texts.sentences import split_sentences
from ..written_forms import WrittenForms, case_of, first_word, lower, words

_MOST_FORMS, _MOST_COMMON = 20_000, 5_000  # limits on stored words; the rarest are dropped
_UNUSUAL, _NEARLY_ALL, _MOST = 0.01, 0.9, 2 / 3  # what these words mean, as shares of the sources
# If a larger share lacks final punctuation (Multi30k: 5 %), the model knows texts without it.
_UNMARKED = 0.02
_OFTEN = 20  # occurrences from which a word is known to need its apostrophe
_LOOKED_AT = 2_000  # sources to inspect for whether they are single sentences


def count_forms(
    sources: Iterable[str], targets: Iterable[str], languages: tuple[str, str]
) -> WrittenForms:
    """Count letter case and final punctuation in the training sources; see `WrittenForms`.

    Args:
        sources: The sources, or a fair sample of them.
        targets: Their targets, or a part of them.
        languages: Codes of source and target.
    """
    language, sources = languages[0], [text for text in sources if text.strip()]
    inside: dict[str, Counter[str]] = defaultdict(Counter)  # spellings, by word in lower case
    ends: dict[str, Counter[str]] = defaultdict(Counter)  # final punctuation, by first word
    seen: Counter[str] = Counter()  # words in lower case
    raised = 0
    for text in sources:
        found = words(text)[1:]
        seen.update(lower(word, language) for word in found[::2])
        if found:
            raised += found[0][0] != lower(found[0][0], language)
        for before, word in zip(found[1:-1:2], found[2::2], strict=True):
            # A word after a full stop or a quotation mark may begin a sentence.
            if not before.strip(" ,-"):
                inside[lower(word, language)][word] += 1
        end = text.rstrip()[-1]
        ends[first_word(text, language)][end if category(end)[0] in "PS" else ""] += 1
    usual = {word: counts.most_common(1)[0] for word, counts in inside.items()}
    ranked = sorted(usual.items(), key=lambda item: (-item[1][1], item[0]))
    common = tuple(word for word, (form, _) in ranked if word == form)[:_MOST_COMMON]
    forms = [form for word, (form, count) in ranked if word != form and count > 1]
    places = {word: place for place, word in enumerate(common)}
    cases = Counter(case_of(text, language, places) for text in sources)
    with_cases = len(sources) - cases.pop("", 0)
    cased = ("lower", "upper", "title", "mixed")
    unusual = [case for case in cased if cases[case] < _UNUSUAL * with_cases]
    ends_of_all = sum(ends.values(), Counter[str]())
    without = ends_of_all.pop("", 0)
    mark = ends_of_all.most_common(1)[0][0] if without < _UNMARKED * len(sources) else ""
    usual_ends = {it: (*ends[it].most_common(1)[0], ends[it].total()) for it in sorted(ends)}
    target_cases = Counter(case_of(text, languages[1], {}) for text in targets)
    return WrittenForms(
        languages=languages,
        unusual=tuple(unusual),
        is_upper=cases["upper"] > _NEARLY_ALL * with_cases,
        is_raised=raised > _NEARLY_ALL * with_cases,
        forms=tuple(forms[:_MOST_FORMS]),
        common=common,
        contractions=tuple(
            word
            for word, count in sorted(seen.items())
            if word.count("'") == 1 and count >= _OFTEN and word.replace("'", "") not in seen
        ),
        mark=mark,
        marks={
            word: end
            for word, (end, count, total) in usual_ends.items()
            if mark and end not in ("", mark) and _is_most(count, total)
        },
        has_cased_targets=2 * target_cases["mixed"] > target_cases.total(),
        are_sentences=_are_sentences(sources, language),
        signs="".join(sorted(set().union(*sources))),
    )


def _is_most(count: int, total: int) -> bool:
    """Return whether a share is clearly above 2/3: true for 5 of 5, but not for 6 of 7."""
    return count > _MOST * total + 1.5 * math.sqrt(_MOST * (1 - _MOST) * total)


def _are_sentences(sources: Sequence[str], language: str) -> bool:
    """Return whether nearly all sources are single sentences."""
    chosen = sources[:: -(-len(sources) // _LOOKED_AT) or 1]
    parts = [split_sentences(text, language) for text in chosen]
    return sum(len(each) == 1 for each in parts) > _NEARLY_ALL * len(parts)
