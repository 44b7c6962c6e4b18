"""Task sources from records: rows of a file, a table or a data set become tasks.

:func:`from_records` is the way in (also as :func:`aworld_gym.tasks.from_records`). Nothing here needs pandas, pyarrow
or Hugging Face's datasets until it is given something of theirs.
"""

from aworld_gym.records.source import RecordTasks, from_records
from aworld_gym.records.verdicts import NAMES as SCORERS

__all__ = ["SCORERS", "RecordTasks", "from_records"]
