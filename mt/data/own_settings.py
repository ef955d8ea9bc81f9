"""What one of several corpora has otherwise than the others: its languages and its cleaning."""

import dataclasses

from mt.config import CleaningConfig, CorpusConfig, DataConfig
from mt.mapping import from_mapping, to_mapping


def own_settings(data: DataConfig, corpus: CorpusConfig, place: str) -> DataConfig:
    """Returns the settings with the corpus's own languages and cleaning in the place of the common ones.

    place: "data.train.main", for messages. Raises ValueError for a setting of cleaning that does not exist, or a value
    that it cannot have.
    """
    source = corpus.source_language or data.source_language
    target = corpus.target_language or data.target_language
    if (source, target) == (data.source_language, data.target_language) and not corpus.cleaning:
        return data
    try:
        cleaning = from_mapping(CleaningConfig, {**to_mapping(data.cleaning), **corpus.cleaning}, f"{place}.cleaning")
    except ValueError as error:  # of a rule, which knows the common settings by name
        raise ValueError(str(error).replace("data.cleaning.", f"{place}.cleaning.")) from error
    return dataclasses.replace(data, source_language=source, target_language=target, cleaning=cleaning)
