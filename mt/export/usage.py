"""How exports are loaded without mt, for their README.md."""

CTRANSLATE2_USAGE = """
With mt: `mt translate {name} "..."`. Without:

```python
import ctranslate2
import sentencepiece

translator = ctranslate2.Translator("{name}")
source = sentencepiece.SentencePieceProcessor(model_file="{name}/{source}")
target = sentencepiece.SentencePieceProcessor(model_file="{name}/{target}")
pieces = source.encode(["..."], out_type=str)
results = translator.translate_batch(
    pieces, beam_size={beam_size}, length_penalty={length_penalty}, return_end_token=True,
    max_input_length=0, min_decoding_length=0, max_decoding_length=256, no_repeat_ngram_size={no_repeat_ngram_size},
)
print([target.decode([piece for piece in result.hypotheses[0] if piece != "</s>"]) for result in results])
```

`return_end_token` lets the length penalty count `</s>`, as it did when the model was tuned. The model adds `</s>` to
the source itself.
"""

TRANSFORMERS_USAGE = """
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
batch = tokenizer(["..."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

Needs the packages `transformers`, `sentencepiece` and `torch`.
"""

ARGOS_USAGE = """
```python
import argostranslate.package
import argostranslate.translate

argostranslate.package.install_from_path("{name}")
print(argostranslate.translate.translate("...", "{source}", "{target}"))
```

Argos Translate cuts text into sentences with a model for {source}, which it fetches when it is first used.
"""
