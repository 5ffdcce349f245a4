"""`vanilla-transformer translate`: translate lines, and draw the attention."""

import argparse
import contextlib
import csv
import functools
import io
import itertools
import math
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TextIO

from .. import __version__
from ..errors import RequestError, quoted
from ..recipes.recipe import languages_of_model
from ..storage.reading import counted, errors_naming, open_content, read_lines
from ..storage.run_files import recipe_values
from .shared_options import add_overwrite, count, load_for_translation

if TYPE_CHECKING:
    from ..translation.many_texts import Translation
    from ..written_forms import WrittenForms

Languages = tuple[str, str] | None  # codes of source and target, to split lines into sentences
_MOST_DOUBTFUL = 3  # doubtful lines that are reported one by one


def add_translate(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `translate` with its options."""
    command = add_command("translate", _translate)
    text = "run directory, other saved model, or user/name on the Hub"
    command.add_argument("directory", metavar="DIR", help=text)
    command.add_argument("file", metavar="FILE", nargs="?", help="UTF-8 text (default: stdin)")
    command.add_argument("--output", metavar="FILE", help="write to a file instead of stdout")
    text = "branch, tag or commit of a model on the Hub; its code is never run"
    command.add_argument("--revision", metavar="NAME", help=text)
    text = "beams (default: the model's own, usually 4)"
    command.add_argument("--num-beams", type=count, help=text)
    text = "print the N best translations with their scores; searches with at least N beams"
    forms = command.add_mutually_exclusive_group()  # output formats
    forms.add_argument("--nbest", type=count, metavar="N", help=text)
    text = "write word alignments as i-j"
    command.add_argument("--alignments", metavar="FILE", help=text)
    text = "begin each translation with TEXT"
    command.add_argument("--prefix", metavar="TEXT", help=text)
    text = "translate this column of a table, by number from 1 or as its header names it"
    forms.add_argument("--csv", type=column, metavar="COLUMN", help=text)
    text = "the same for a table whose cells are separated by tabs"
    forms.add_argument("--tsv", type=column, metavar="COLUMN", help=text)
    text = "split each line into sentences, translate them one by one and join them again"
    command.add_argument("--split-sentences", action=argparse.BooleanOptionalAction, help=text)
    text = "languages for --split-sentences, such as en-de, if the model does not say them"
    command.add_argument("--pair", metavar="S-T", help=text)
    text = "size of a batch: sentences x beams x tokens of the longest (default: 16384)"
    command.add_argument("--tokens-at-once", type=count, default=16_384, help=text)
    command.add_argument("--no-shortlist", action="store_true", help="search the whole vocabulary")
    text = "draw the last layer's attention for the first line"
    command.add_argument("--attention", metavar="PNG", help=text)
    outputs = ("output", "alignments", "attention")
    add_overwrite(command, reads=("directory", "file"), files=outputs)


def column(text: str) -> int | str:
    """Parse a column: a number from 1, or a name."""
    return count(text) if text.isdecimal() else text


def _translate(options: argparse.Namespace) -> int:
    """Translate a text, one sentence per line.

    Example:
      echo "Where can I buy a ticket?" | vanilla-transformer translate everyday-en-de
      vanilla-transformer translate everyday-en-de source.txt --output out.txt --attention map.png
      vanilla-transformer translate everyday-en-de source.txt --nbest 3
      vanilla-transformer translate everyday-en-de table.csv --csv text --output translated.csv
      vanilla-transformer translate user/name source.txt --revision main

    With --nbest each translation is a line: sentence (from 0) ||| translation ||| score, and
    ||| doubtful if the model is far less sure of it than usual. Such lines are named on stderr.
    With --alignments, FILE gets one line for each line of output, or row of a table, with links
    such as 0-0 1-2: source word, translated word. Words are separated by white space and counted
    from 0.
    A line of several sentences is split, and their translations are joined again, if the model was
    trained on single sentences; --split-sentences and --no-split-sentences decide otherwise.
    With --csv or --tsv each row is printed with its translation as an additional last cell. The
    first row is a header if the column is given by name, and a row like any other if it is given by
    number. Cells of --csv are separated by commas or semicolons, and may be quoted; those of --tsv
    never are.
    What is translated is kept in a hidden file until --output FILE is complete: after a stop, or an
    error in a line such as more than 4096 tokens, the same command goes on from there.
    """
    from ..data.pair_files import check_is_text
    from ..machine.progress import progress
    from ..storage.atomic import cannot_be_replaced
    from ..storage.continued import continued, kept_rows
    from ..storage.run_files import digests, warn_of_changed_model
    from ..storage.saved_model import MODEL, model_folder
    from ..translation.many_texts import Translation, translate_nbest
    from ..written_forms import written_forms

    directory = model_folder(options.directory, options.revision)
    with contextlib.ExitStack() as stack:
        source: BinaryIO = sys.stdin.buffer
        if options.file:
            source = stack.enter_context(open_content(Path(options.file)))
        # Whoever writes to a pipe or terminal may wait for translations before writing more.
        status = os.stat(options.file) if options.file else os.fstat(source.fileno())
        pipe = None if stat.S_ISREG(status.st_mode) else Pipe(source)
        warn_of_changed_model(directory)
        model, tokenizer = load_for_translation(options, directory)
        forms = written_forms(tokenizer)
        languages = _languages(options, directory, forms)
        name = options.file or "standard input"
        if not options.file and source.isatty():
            print("Type a sentence; Ctrl-D ends.", file=sys.stderr)
        if options.file and pipe is None and options.csv is None and options.tsv is None:
            check_is_text(Path(options.file))
        search = _search(options, model)
        longest = float(recipe_values(directory).get("max_source_length") or math.inf)

        def is_long(text: str) -> bool:
            return 4 * len(text) > longest < len(tokenizer(text, verbose=False).input_ids)

        def answers_to(rows: Iterator[_Row], before: int) -> Iterator[list]:
            """Yield [translations, warning] for each row; the warning is None if all seem right."""
            read, rows = itertools.tee(rows)
            # A row without texts, such as a header, yields an empty text, to be printed in order.
            texts = (text for row in read for text in row.texts or [""])
            group = None if pipe is None else functools.partial(arriving, pipe=pipe)
            asked = {**search, "group": group, "first": before + 1}
            found = translate_nbest(model, tokenizer, texts, **asked)
            for row in progress(rows, initial=before, **work):
                answers = [next(found) for _ in row.texts or [""]]
                translations = _joined(answers, languages) if row.texts else []
                yield [translations, _doubt(row, translations, forms, is_long)]

        total = None if pipe is not None or not options.file else _count(Path(options.file))
        work: dict[str, Any] = {"what": "Translating", "unit": "lines", "total": total}
        work |= {"shown": pipe is None, "stream": None if options.output else sys.stdout}

        rows, waiting = itertools.tee(_rows(pipe or source, name, options, languages))
        drawn: list[str | None] = []  # first text and translation, for --attention
        if options.output and not cannot_be_replaced(Path(options.output)):
            # All settings but the batch size, which changes no translation.
            decided = {name: value for name, value in search.items() if name != "tokens_at_once"}
            decided["no_shortlist"] = options.no_shortlist
            made_from = {"model": digests(directory, MODEL), "by": __version__, **decided}
            partial = stack.enter_context(kept_rows(Path(options.output)))
            answered = continued(partial, made_from, rows, answers_to)
        else:
            answered = answers_to(rows, 0)
        target, alignments = (_output(it, stack) for it in (options.output, options.alignments))
        doubtful = 0  # number of doubtful lines
        for number, (row, (found, doubt)) in enumerate(zip(waiting, answered, strict=True)):
            translations = [Translation(*translation) for translation in found]
            if doubt:
                doubtful += 1
                if doubtful <= _MOST_DOUBTFUL:
                    print(f"{name}, line {number + 1}, {doubt}", file=sys.stderr)
            target.writelines(_output_lines(number, row, translations, options.nbest))
            target.flush()
            if options.alignments:
                alignments.writelines(_alignment_lines(translations))
                alignments.flush()
            if not drawn and (texts := [text for text in row.texts if text.strip()]):
                drawn = [texts[0], translations[0].text if len(row.texts) == 1 else None]
        if options.attention:
            _draw(options.attention, drawn, model, tokenizer, search["num_beams"])
    if doubtful > _MOST_DOUBTFUL:
        print(f"{counted(doubtful, 'translation')} of {name} may be wrong.", file=sys.stderr)
    return 0


def _draw(picture: str, drawn: Sequence[Any], model: Any, tokenizer: Any, beams: int) -> None:
    """Draw the last layer's attention for a text and its translation."""
    from ..visualization import attention_weights, plot_attention, save_figure

    if not drawn:
        raise RequestError("No line has text, so there is no attention to draw.")
    attention = attention_weights(model, tokenizer, *drawn, num_beams=beams)
    save_figure(plot_attention(attention), picture)


def _count(path: Path) -> int:
    """Return the number of lines of a file, which may be compressed."""
    with open_content(path) as file:
        return sum(1 for _ in read_lines(file, str(path)))


def _search(options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """Convert the command's options to arguments of the search."""
    from ..batch_translation import generation_option

    nbest = options.nbest or 1
    return {
        "tokens_at_once": options.tokens_at_once,
        "num_beams": max(options.num_beams or generation_option(model, {}, "num_beams"), nbest),
        "num_return_sequences": nbest,
        "prefix": options.prefix,
        "return_alignments": bool(options.alignments) or None,
    }


def _output_lines(
    number: int, row: "_Row", translations: "Sequence[Translation]", nbest: int | None
) -> Iterator[str]:
    """Yield the output lines of row `number`, counted from 0."""
    if not row.texts:
        yield row.line()
    for text, score, _, _, doubtful, _ in translations:
        line = " ".join(text.splitlines())  # a model may emit line breaks
        if row.separator is not None:
            yield row.line(line)
        elif nbest:
            shown = "-" if score is None else f"{score:.6f}"
            yield f"{number} ||| {line} ||| {shown}{' ||| doubtful' if doubtful else ''}\n"
        else:
            yield f"{line}\n"


def _alignment_lines(translations: "Sequence[Translation]") -> Iterator[str]:
    """Yield a line of word alignments for each translation of a row; an empty one for a header."""
    for links in [translation.alignment for translation in translations] or [None]:
        yield " ".join(f"{i}-{j}" for i, j in links or ()) + "\n"


def _doubt(
    row: "_Row",
    translations: "Sequence[Translation]",
    forms: "WrittenForms",
    is_long: Callable[[str], bool],
) -> str | None:
    """Return a warning if the translation of a row may be wrong, else None."""
    from ..data.languages import foreign_language

    text, language = " ".join(map(forms.source_of, row.texts)), forms.languages[0]
    if foreign := language and foreign_language(text, language):
        return f"looks like {foreign}; its translation may be wrong."
    if any(map(is_long, row.texts)):
        return "is longer than any source in training; its translation may break off."
    if translations and translations[0].doubtful:
        return "may be translated wrongly: the model is far less sure of it than usual."
    return None


def _languages(options: argparse.Namespace, directory: Path, forms: "WrittenForms") -> Languages:
    """Return the languages for splitting lines into sentences; None if lines are not split."""
    whole = options.nbest or options.alignments or options.prefix
    if options.split_sentences and whole:
        raise RequestError("--split-sentences excludes --nbest, --alignments and --prefix.")
    if options.split_sentences:
        known = all(forms.languages) and options.pair is None
        return forms.languages if known else languages_of_model(directory, options.pair)
    splits = options.split_sentences is None and forms.are_sentences and not whole
    return forms.languages if splits else None


def _joined(answers: "list[list[Translation]]", languages: Languages) -> "list[Translation]":
    """Join the translations of a row's sentences."""
    if len(answers) == 1 or languages is None:
        return answers[0]
    from ..texts.sentences import join_sentences
    from ..translation.many_texts import Translation

    text = join_sentences((best.text for best, *_ in answers), languages[1])
    return [Translation(text, score=None, doubtful=any(best.doubtful for best, *_ in answers))]


class _Row(NamedTuple):
    """A line of text or row of a table, with its texts to translate; a header has none."""

    cells: list[str]  # cells of a table's row; in plain text, the whole line is one cell
    texts: list[str]
    separator: str | None = None  # between the cells of a table

    def line(self, *more: str) -> str:
        """Return the row with further cells appended, as a line of the table."""
        cells = [*self.cells, *more]
        if self.separator == "\t":  # tables with tabs have no quoting
            return "\t".join(cell.replace("\t", " ") for cell in cells) + "\n"
        written = io.StringIO()
        csv.writer(written, delimiter=self.separator or ",", lineterminator="\n").writerow(cells)
        return written.getvalue()


def _rows(
    stream: "BinaryIO | Pipe", name: str, options: argparse.Namespace, languages: Languages
) -> Iterator[_Row]:
    """Yield the lines, or the rows of a table, with their texts to translate.

    Args:
        stream: UTF-8 text.
        name: Its name in errors.
        options: Options of the command; `csv` or `tsv` is the column of a table to translate.
        languages: Codes of source and target, to split texts into sentences. None: do not split.
    """
    from ..data.checked_pairs import MalformedError, utf8_text
    from ..data.tables import Dialect, split_rows

    lines, column = _lines(stream, name), options.csv or options.tsv
    separator = "\t" if options.tsv else "\n"  # in plain text, a line is a row with one cell
    if options.csv:
        first = next(lines, b"")
        separator = ";" if first.count(b";") > first.count(b",") else ","
        lines = itertools.chain([first], lines)
    place, width = None, 0
    dialect = Dialect(separator, {} if options.csv else None)
    for number, cells in split_rows(lines, dialect, decode=utf8_text):
        if isinstance(cells, MalformedError):
            raise RequestError(f"{name}, line {number}: {cells}; repair the line.")
        if column is None:
            yield _Row(cells, _sentences(cells[0], languages))
            continue
        is_header = place is None and isinstance(column, str)
        if place is None:
            place, width = _place(cells, name, column), len(cells)
        if is_header or not any(cells):  # a blank row, such as the end of a file
            yield _Row([*cells, *["translation"] * is_header], [], separator)
            continue
        cells += [""] * (width - len(cells))
        if len(cells) > width:
            raise RequestError(f"{name}, line {number}: {len(cells)} cells, not {width}; fix it.")
        yield _Row(cells, _sentences(cells[place], languages), separator)


def _place(cells: list[str], name: str, column: int | str) -> int:
    """Find a column by name or number in the first row, and return its index."""
    if isinstance(column, int) and column <= len(cells):
        return column - 1
    if isinstance(column, str) and cells.count(column) == 1:
        return cells.index(column)
    known = ", ".join(map(quoted, cells))
    raise RequestError(f"{name} needs one column {quoted(column)}; its first row is {known}.")


def _sentences(text: str, languages: Languages) -> list[str]:
    if languages is None:
        return [text]
    from ..texts.sentences import split_sentences

    return split_sentences(text, languages[0])


class Pipe(io.BufferedIOBase):
    """A stream whose lines can be read as soon as each one arrives."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: Any = stream
        self._arrived = io.BytesIO()

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line, or `size` bytes of it; wait until it arrives."""
        assert size is not None
        line = self._arrived.readline(size)
        while not line.endswith(b"\n") and len(line) < size:
            self._arrived = io.BytesIO(self._stream.read1(2**16))
            if not (more := self._arrived.readline(size - len(line))):
                break
            line += more
        return line

    def is_empty(self) -> bool:
        """Return True if no further line has begun to arrive."""
        return self._arrived.tell() == self._arrived.getbuffer().nbytes


def arriving(texts: Iterable[str], pipe: Pipe, *, most: int = 2048) -> Generator[list[str]]:
    """Group texts that arrive together; the sender may wait for translations before it goes on."""
    group: list[str] = []
    for text in texts:
        group.append(text)
        if pipe.is_empty() or len(group) == most:
            yield group
            group = []
    if group:
        yield group


def _lines(stream: "BinaryIO | Pipe", name: str) -> Iterator[bytes]:
    # Only \n ends a line, as for `wc -l`; str.splitlines also splits at eleven other characters.
    with errors_naming(name):
        yield from read_lines(stream, name)


def _output(name: str | None, stack: contextlib.ExitStack) -> TextIO:
    """Open a temporary file that is renamed to `name` when `stack` closes; None gives stdout."""
    if name is None:
        return sys.stdout
    from ..storage.atomic import file_written_aside

    aside = stack.enter_context(file_written_aside(Path(name)))
    return stack.enter_context(aside.open("w", encoding="utf-8", newline="\n"))
