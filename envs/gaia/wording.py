"""The words of questions: one table of phrases, shared by all operators and makers of all templates.

What is asked for is said in one noun phrase; the sentences around it stand in :mod:`envs.gaia.sentences`.

A noun phrase follows a context-free grammar. :data:`GRAMMAR` maps each nonterminal to its productions, and each
production (named after its operator or maker) to its paraphrases, which mean exactly the same. In a paraphrase,
``{slot}`` is a nonterminal of :data:`GRAMMAR`, or a terminal of :data:`TERMINALS`; a digit at the end of a slot's
name (``{number2}``) only tells it from the others. There is no other text, no optional part, and no free spacing. So
a reader that goes from left to right, tries each production of the nonterminal that may stand at a place and goes
back where one fails, finds exactly one reading. Three rules keep it to one:

* Filters follow their rows at once, the first after a space, each other after `` and ``. They belong to the innermost
  rows that are open. Only the last filter of some rows holds a noun phrase that may hold filters itself.
* A file is its name, or a name ``inside`` another file (an archive, or a mail that it is attached to), or that file
  inside an archive which a document names in its sentence ``Only {filename} has the final figures.``
* Literal values of columns stand in double quotes. Names of entities are those of the world's pages; where one is the
  beginning of another, the longer one is meant.

What the phrases mean:

* number: whole numbers, except ``average``, ``percent``, ``converted`` and ``fact`` of a decimal column. Only the
  outermost may be rounded; the hint says to how many decimals, and none means a whole number (halves never occur).
* ``difference`` is never negative. ``days`` counts from the first date to the second, the first not included.
* ``stated`` is a sentence ``The {quantity} is {value}.`` (perhaps with a unit before the full stop) in the text of a
  document, mail or slide; ``noted`` the same in a slide's speaker notes. Each quantity stands there once.
* ``coded`` and ``called`` find an entity by its code or its name. ``subject`` is the entity that a letter's line
  ``Subject: {event} of {name}`` names, and ``event_date`` the date in its sentence ``The {event} took place on
  {date}.``
* ``visible`` rows are those that a spreadsheet does not hide, ``hidden`` rows those that it does; rows of which
  neither is said are all. Rows of joined sheets have the columns of both, joined by the entity; rows of several
  sheets together are those of the one and those of the other. In a merged column a value stands for all the rows that
  it spans.
* ``dated`` filters look at the only column of dates; ``above`` and ``below`` are strict, like ``after`` and
  ``before``.
* ``as_of`` is the value of the last entry on or before that day on the entity's page of revisions, ``before_last`` that
  of the last entry but one, ``first_entry`` that of the first; ``revised_on`` is the date of the last entry.
* ``nicknamed`` finds an entity by the nickname that a page explains; ``only`` is the one entity on the atlas' list of
  those with that value.
* Versions of a document are attached files whose first line is its title. Each says ``Status: signed``, ``draft`` or
  ``withdrawn``, ``Dated: {date}``, ``In force from: {date}`` and ``Issued by: {name}``, as far as it has them.
  ``latest_signed`` is the one with the latest ``Dated`` of those that are signed, ``in_force`` the one with the latest
  ``In force from`` that is not after the date, ``issued_by`` the only one by that entity.
* ``route`` adds up the lengths of links, each a row of a table with the columns From, To and Length.
* ``legend_bar`` is the entity that the legend (a table of colours and names) gives for the colour of a bar.

Whoever adds a production follows the rules: it begins with ``the``, every slot is a nonterminal or a terminal, the
last word of the phrase closes it, and it cannot be read as another one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

HIGH = ("highest", "greatest", "largest")
LOW = ("lowest", "smallest", "least")
ORDINALS = ("", "second ", "third ", "fourth ", "fifth ")
"""What stands before a superlative for ranks 1 to 5: ``{ordinal}{superlative}``."""

TERMINALS: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number, such as 412",
        "decimal": "a number with or without decimals, such as 0.3048",
        "measure": "the label of a column of whole numbers, in lower case, such as work time",
        "label": "the label of a column of few values, in lower case, such as cargo",
        "key": "the label of the column that names the entities, in lower case, such as ship",
        "value": "a literal value of a column, in double quotes",
        "noun": "what one row or entity is, such as voyage or ship",
        "plural": "what rows or entities are, such as voyages or ships",
        "name": "the name of an entity; several are parted by commas and an and",
        "attribute": "what a question calls a column of the atlas, such as opening date",
        "ordinal": "one of ORDINALS",
        "superlative": "one of HIGH or LOW; for dates, earliest or latest",
        "colour": "the name of a colour",
        "pitch": "high, middle or low",
        "what": "number, code, word, name or date: what a carrier carries",
        "quantity": "what a document gives a value for, such as delivery fee",
        "event": "what a letter reports, such as inspection",
        "order": "first, earliest, last or latest",
        "list": "one word that names a list",
        "label_of_bar": "what stands under a bar, in double quotes",
        "sheet": "the name of a sheet, one word",
        "table": "the name of a table in a database",
        "cell": "a cell's address, such as B7",
        "year": "four digits",
        "unit": "a unit in words, such as whole metres",
        "filename": "a file's name",
        "document": "the title in lower case of documents of which there are versions, such as delivery tariff",
        "role": "one of sentences.ROLES, which an earlier sentence has defined",
        "roles": "several of them, joined as in a, b and c",
    }
)

_FACT = ("the {attribute} of {entity}", "the {attribute} that the atlas gives for {entity}")
_REVISED: Mapping[str, Sequence[str]] = {
    "as_of": (
        "the {attribute} of {entity} as the atlas gave it on {date}",
        "the {attribute} that the atlas gave for {entity} on {date}",
    ),
    "before_last": (
        "the {attribute} of {entity} before its latest revision in the atlas",
        "the {attribute} that the atlas gave for {entity} before the latest revision",
    ),
    "first_entry": (
        "the {attribute} of {entity} as the atlas first gave it",
        "the {attribute} that the atlas first gave for {entity}",
    ),
    "role": ("{role}",),
}

GRAMMAR: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "number": {
            "literal": ("{int}",),
            # of rows
            "total": (
                "the total {measure} of {rows}",
                "the combined {measure} of {rows}",
                "the overall {measure} of {rows}",
            ),
            "average": (
                "the average {measure} of {rows}",
                "the mean {measure} of {rows}",
                "the arithmetic mean of the {measure} of {rows}",
            ),
            "spread": (
                "the spread from the lowest to the highest {measure} among {rows}",
                "the distance from the smallest to the largest {measure} among {rows}",
                "the highest minus the lowest {measure} among {rows}",
            ),
            "count": ("the number of {rows}", "the count of {rows}"),
            "cell": ("the {measure} of {row}", "the {measure} recorded for {row}"),
            "weighted": (
                "the total of {measure} times {attribute} over {entities}",
                "the sum of all products of {measure} and {attribute} over {entities}",
            ),
            # of the atlas
            "fact": _FACT,
            **_REVISED,
            # of numbers
            "difference": (
                "the difference between {number} and {number2}",
                "the gap between {number} and {number2}",
                "the amount that separates {number} and {number2}",
            ),
            "sum": (
                "the sum of {number} and {number2}",
                "the result of adding {number} to {number2}",
            ),
            "product": (
                "the product of {number} and {number2}",
                "the result of multiplying {number} by {number2}",
            ),
            "percent": (
                "the amount that is {number} percent of {number2}",
                "the result of taking {number} percent of {number2}",
            ),
            "larger": ("the larger of {number} and {number2}", "the greater of {number} and {number2}"),
            "smaller": ("the smaller of {number} and {number2}", "the lesser of {number} and {number2}"),
            "converted": (
                "the value in {unit} (at {decimal} {unit2}) of {number}",
                "the equivalent in {unit} (at {decimal} {unit2}) of {number}",
            ),
            "days": (
                "the number of days from {date} to {date2}",
                "the count of days from {date} to {date2}",
                "the time in days from {date} to {date2}",
            ),
            "route": (
                "the length of the shortest route from {entity} to {entity2} over the two-way links listed in {file}",
                "the length of the shortest way from {entity} to {entity2} over the two-way links listed in {file}",
            ),
            # of media
            "tiles": (
                "the number of {colour} tiles in {file}",
                "the count of {colour} tiles in {file}",
                "the number of tiles coloured {colour} in {file}",
            ),
            "bill": (
                "the total price of all tiles in {file} by the prices in {file2}",
                "the cost of all tiles in {file} at the prices in {file2}",
            ),
            "bar": (
                "the height in pixels of the {colour} bar in {file}",
                "the pixel height of the {colour} bar in {file}",
            ),
            "labelled_bar": (
                "the height in pixels of the bar labelled {label_of_bar} in {file}",
                "the pixel height of the bar above {label_of_bar} in {file}",
            ),
            "tones": (
                "the number of {pitch} tones in {file}",
                "the count of {pitch} tones in {file}",
                "the number of tones of {pitch} pitch in {file}",
            ),
        },
        "date": {
            "fact": _FACT,
            **_REVISED,
            "revised_on": (
                "the date on which the atlas last revised the {attribute} of {entity}",
                "the date of the latest revision of the {attribute} of {entity} in the atlas",
            ),
            "row_date": ("the date of {row}", "the date recorded for {row}"),
            "event_date": (
                "the date of the {event} that {file} reports",
                "the date of the {event} reported in {file}",
            ),
        },
        "text": {
            "fact": _FACT,
            **_REVISED,
            "cell_text": ("the {label} of {row}", "the {label} recorded for {row}"),
            "reference": ("the reference of {row}", "the reference recorded for {row}"),
        },
        # what any medium can carry: a number, date or text, as {what} or the quantity says
        "carried": {
            "qr": ("the {what} in the QR code {file}", "the {what} that the QR code {file} holds"),
            "morse": ("the {what} sent in Morse code in {file}", "the {what} that {file} holds in Morse code"),
            "dialled": ("the {what} dialled in {file}", "the {what} that the telephone tones in {file} dial"),
            "lettered": ("the {what} written in the picture {file}", "the {what} that the picture {file} shows"),
            "printed": ("the {what} that {file} prints", "the {what} printed by {file}"),
            "spreadsheet_cell": (
                'the {what} in cell {cell} on sheet "{sheet}" of {file}',
                'the {what} that cell {cell} on sheet "{sheet}" of {file} holds',
            ),
            "stated": (
                "the {quantity} stated in {file}",
                "the {quantity} that {file} states",
                "the {quantity} given in {file}",
            ),
            "noted": (
                "the {quantity} stated in the speaker notes of {file}",
                "the {quantity} that the speaker notes of {file} state",
            ),
        },
        "entity": {
            "named": ("the {noun} {name}",),
            "reference_of": _FACT,  # where the attribute is the name of another entity
            "cell_entity": ("the {key} of {row}", "the {key} recorded for {row}"),
            "best": (
                "the {noun} with the {superlative} {attribute} among {entities}",
                "the {noun} that has the {superlative} {attribute} of {entities}",
            ),
            "top_group": (
                "the {key} with the {superlative} total {measure} over {rows}",
                "the {key} that has the {superlative} total {measure} in {rows}",
            ),
            "top_product": (
                "the {key} with the {superlative} product of {measure} and {measure2} among {rows}",
                "the {key} that has the {superlative} {measure} times {measure2} among {rows}",
            ),
            "coded": ("the {noun} whose {attribute} is {text}", "the {noun} that has {text} as {attribute}"),
            "role": ("{role}",),
            "nicknamed": (
                "the {noun} whose nickname is {text}",
                "the {noun} that goes by the nickname of {text}",
            ),
            "only": (
                "the only {noun} whose {attribute} is {entity}",
                "the one {noun} that has {entity} as {attribute}",
            ),
            "called": ("the {noun} whose name is {text}", "the {noun} that has {text} as its name"),
            "subject": ("the {noun} that {file} is about", "the {noun} that is the subject of {file}"),
            "labelled_top_bar": (
                "the {noun} above whose name the {superlative} bar stands in {file}",
                "the {noun} that labels the {superlative} bar in {file}",
            ),
            "legend_bar": (
                "the {noun} that {file} gives for the colour of the {superlative} bar in {file2}",
                "the {noun} that stands in {file} for the colour of the {superlative} bar in {file2}",
            ),
            "shared": (
                "the only {noun} on both the {list} list and the {list2} list in {file}",
                "the one {noun} that stands on the {list} list and the {list2} list in {file}",
            ),
            "event_order": (
                "the {noun} that had the {order} {event} by the letters inside {file}",
                "the {noun} whose {event} was the {order} by the letters inside {file}",
            ),
        },
        "row": {
            "ranked": (
                "the {noun} with the {ordinal}{superlative} {measure} among {rows}",
                "the {noun} that has the {ordinal}{superlative} {measure} of {rows}",
            ),
            "referenced": ("the {noun} {place} whose reference is {text}",),
        },
        "rows": {
            "all": ("the {plural} {place}{filters}",),
            "visible": ("the visible {plural} {place}{filters}",),
            "hidden": ("the hidden {plural} {place}{filters}",),
        },
        "place": {
            "in_file": ("in {file}", "listed in {file}", "recorded in {file}"),
            "on_sheet": ('on sheet "{sheet}" of {file}', 'listed on sheet "{sheet}" of {file}'),
            "in_table": ("in table {table} of {file}", "recorded in table {table} of {file}"),
            "together": (
                'on the sheets "{sheet}" and "{sheet2}" of {file} together',
                'on either of the sheets "{sheet}" and "{sheet2}" of {file}',
            ),
            "joined": (
                'on the joined sheets "{sheet}" and "{sheet2}" of {file}',
                'on the sheets "{sheet}" and "{sheet2}" of {file} joined',
            ),
        },
        "filter": {
            "has": ("whose {label} is {value}", "with {value} as {label}", "that have {value} as {label}"),
            "has_text": ("whose {label} is {text}", "with {text} as {label}"),
            "in_year": ("dated in {year}", "from the year {year}"),
            "after": ("dated after {date}", "that came after {date}"),
            "before": ("dated before {date}", "that came before {date}"),
            "above": ("with {measure} above {number}", "whose {measure} is more than {number}"),
            "below": ("with {measure} below {number}", "whose {measure} is less than {number}"),
        },
        "entities": {
            "listed": ("the {plural} listed in {file}", "the {plural} that {file} lists"),
            "these": ("the {plural} {name}",),
            "those": ("{roles}",),
        },
        "names": {
            "missing": (
                "the {plural} which are listed in {file} but in none of {files}",
                "the {plural} that {file} lists but none of {files} does",
            ),
        },
        "file": {
            "file": ("{filename}",),
            "inside": ("{filename} inside {file}",),
            "latest_signed": (
                "the latest signed version of the {document}",
                "the most recent signed version of the {document}",
            ),
            "in_force": (
                "the version of the {document} in force on {date}",
                "the version of the {document} that was in force on {date}",
            ),
            "issued_by": (
                "the version of the {document} issued by {entity}",
                "the version of the {document} that was issued by {entity}",
            ),
            "final": (
                "the file inside {file} that {file2} calls final",
                "the file inside {file} called final in {file2}",
            ),
        },
    }
)
"""Nonterminal -> production -> paraphrases.

``carried`` may stand wherever a number, a date or a text may. ``{filters}`` is nothing, or a space and filters joined
by `` and ``. ``{files}`` is files joined as in ``a, b and c``; so are the names of ``these``.
"""

_PARAPHRASES: Mapping[str, Sequence[str]] = MappingProxyType(
    {key: variants for productions in GRAMMAR.values() for key, variants in productions.items()}
)


def say(rng: random.Random, production: str, **slots: object) -> str:
    """One of the paraphrases of a production, its slots filled in.

    Raises:
        KeyError: no such production, or a slot that is missing.
    """
    return rng.choice(_PARAPHRASES[production]).format_map(slots)


def joined(items: Sequence[str], word: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"
