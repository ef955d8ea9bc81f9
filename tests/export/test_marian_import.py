"""A Marian model made by transformers with random weights, imported: the same translations, and fine-tuning goes on."""

import io
import json
import warnings

import pytest
import sentencepiece
import torch

from mt.checkpoint import load_config, load_tokenizers
from mt.config import CorpusConfig, TrainConfig
from mt.export.export import Request, export
from mt.export.marian_import import import_marian
from mt.training.run import train
from mt.translation.translator import load_translator
from tests.export.small_runs import TARGET_WORDS, WORDS, sentences

transformers = pytest.importorskip("transformers", reason="needs mt's extra transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*are unfinished.*", "ignore:.*sacremoses.*", "ignore:.*tokenizer.*")


def train_spm(lines):
    """Returns the bytes of a SentencePiece model as OPUS-MT has them: no byte pieces, and special ids of its own."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=60, hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc", character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def make_marian(folder, **changes):
    """Writes a model as transformers does, with the vocabulary of both sides in one vocab.json."""
    folder.mkdir()
    pieces = []
    for name, words in (("source", WORDS), ("target", TARGET_WORDS)):
        model = train_spm(sentences(200, words))
        (folder / f"{name}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces += [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    names = ["</s>", "<unk>", *sorted(set(pieces), reverse=True), "<pad>"]
    vocabulary = {piece: i for i, piece in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    pad = vocabulary["<pad>"]
    settings = {
        "vocab_size": len(names), "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": pad,
        "eos_token_id": 0, "bos_token_id": None, "decoder_start_token_id": pad, "scale_embedding": True,
        "activation_function": "swish", "max_position_embeddings": 64, "forced_eos_token_id": None,
    }  # fmt: skip
    torch.manual_seed(3)
    model = transformers.MarianMTModel(transformers.MarianConfig(**{**settings, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[0, 0] = 2.0  # outputs end
        model.final_logits_bias[0, 1] = -20.0  # <unk> is seldom written
        model.final_logits_bias[0, pad] = 4.0  # likely: no training ever made it less so
    model.generation_config = transformers.GenerationConfig(
        num_beams=3, length_penalty=1.0, bad_words_ids=[[pad]], pad_token_id=pad, eos_token_id=0,
        decoder_start_token_id=pad, max_length=60, renormalize_logits=True,
    )  # fmt: skip
    model.save_pretrained(folder)
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def translations_of(folder, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    unknown = tokenizer.unk_token_id
    found = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")
        longest = 2 * (ids["input_ids"].shape[1] - 1) + 10  # of ours
        sequence = model.generate(**ids, max_new_tokens=longest, early_stopping="never", suppress_tokens=[unknown])[0]
        found.append(tokenizer.decode(sequence, skip_special_tokens=True))
    return found


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False, "activation_function": "relu"}])
def test_translates_the_same(changes, tmp_path):
    make_marian(tmp_path / "marian", **changes)
    settings = import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")
    assert "model.positions=sinusoidal_paper" in settings and "model.output_bias=True" in settings
    texts = [*sentences(12, seed=9), "Zürich ﬁne ½ tea ☃"]  # letters that no piece has, and some that are normalised
    expected = translations_of(tmp_path / "marian", texts)
    assert len(set(expected)) > 6
    translator = load_translator(tmp_path / "run", "cpu")
    assert translator.decode.beam_size == 3 and translator.decode.max_source_tokens == 63
    assert [text.strip() for text in translator.translate(texts)] == expected


def test_pickled_weights_are_read_without_running_them(tmp_path):
    model = make_marian(tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "a", "en", "de")
    (tmp_path / "marian" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "marian" / "pytorch_model.bin")
    import_marian(tmp_path / "marian", tmp_path / "b", "en", "de")
    texts = sentences(5)
    a, b = (load_translator(tmp_path / name, "cpu").translate(texts) for name in "ab")
    assert a == b
    torch.save({"model": print}, tmp_path / "marian" / "pytorch_model.bin")
    damaged = [(tmp_path / "marian" / "pytorch_model.bin").read_bytes()]
    torch.save(model.state_dict(), tmp_path / "marian" / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    content = (tmp_path / "marian" / "pytorch_model.bin").read_bytes()
    damaged += [content[: len(content) * part // 40] for part in range(40)]
    damaged += [b"\x80\x02" + rest for rest in (b"0", b".", b"s.", b"R", b"h\x01", b"a.", b"J\x01")]
    for content in damaged:
        (tmp_path / "marian" / "pytorch_model.bin").write_bytes(content)
        with pytest.raises(ValueError, match="pytorch_model.bin: damaged, or holds more than tensors"):
            import_marian(tmp_path / "marian", tmp_path / "c", "en", "de")
    assert not (tmp_path / "c").exists()


def test_weights_of_half_precision(tmp_path):
    model = make_marian(tmp_path / "marian")
    weights = {name: tensor.half() for name, tensor in model.state_dict().items()}
    assert "model.encoder.embed_positions.weight" in weights
    (tmp_path / "marian" / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "marian" / "pytorch_model.bin")
    assert "positions=sinusoidal_paper" in import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")


def test_an_imported_model_is_exported(tmp_path):
    """CTranslate2 searches with <pad> among the tokens, which has to be as unlikely as training would make it."""
    pytest.importorskip("ctranslate2", reason="needs mt's extra export")
    make_marian(tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")
    given = tmp_path / "given.txt"
    given.write_text("".join(f"{line}\n" for line in sentences(12, seed=9)))
    found = export(Request(tmp_path / "run", tmp_path / "out", "ctranslate2", verify_file=given))
    assert not found.unexplained
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "trained by Marian, imported and exported by mt" in card


def test_a_run_appears_whole(tmp_path, monkeypatch):
    make_marian(tmp_path / "marian")

    def stopped(*_):
        raise SystemExit(143)

    monkeypatch.setattr("mt.export.marian_import.point", stopped)
    with pytest.raises(SystemExit):
        import_marian(tmp_path / "marian", tmp_path / "runs" / "opus", "en", "de")
    assert not list((tmp_path / "runs").iterdir())


def test_an_imported_run_is_fine_tuned_and_exported(tmp_path):
    make_marian(tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "parent", "en", "de")
    pairs = list(zip(sentences(40), sentences(40, TARGET_WORDS), strict=True))
    corpus = tmp_path / "pairs.tsv"
    corpus.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    config = TrainConfig(run_dir=str(tmp_path / "tuned"), init_from=str(tmp_path / "parent"), device="cpu")
    config.model = load_config(tmp_path / "parent").model
    config.data.source_language, config.data.target_language = "en", "de"
    config.data.cache_dir = str(tmp_path / "cache")
    config.data.train = {"main": CorpusConfig(path=str(corpus))}
    config.data.valid, config.data.cleaning.drop_held_out = config.data.train, "none"
    config.decode.max_length_offset = 2
    config.trainer.max_steps, config.trainer.tensorboard, config.optim.lr = 30, False, 1e-2
    config.trainer.validate_every_steps, config.optim.warmup_steps = 10, 5
    with warnings.catch_warnings(action="ignore"):
        train(config, [])
    log = [json.loads(line) for line in (tmp_path / "tuned" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if line.get("event") == "valid"]
    assert losses[-1] < losses[0] - 0.3
    before, after = (load_translator(tmp_path / name, "cpu").model for name in ("parent", "tuned"))
    assert not torch.equal(before.output_bias, after.output_bias)
    found = export(Request(tmp_path / "tuned", tmp_path / "out", "transformers", verify_sentences=10))
    assert not found.unexplained


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", {"model_type": "bart"}, "config.json: model_type='bart': only marian"),
        ("config.json", {"scale_embedding": False}, "config.json: scale_embedding=False: must be true"),
        ("config.json", {"activation_function": "tanh"}, "config.json: activation_function='tanh': must be one of"),
        ("config.json", {"decoder_ffn_dim": 7}, "encoder_ffn_dim and decoder_ffn_dim are 24 and 7: must be equal"),
        ("config.json", {"d_model": None}, "config.json: damaged or incomplete"),
        ("config.json", {"d_model": 15}, "config.json: damaged or incomplete .*must be a multiple of model.n_heads=2"),
        ("config.json", {"max_position_embeddings": "many"}, "config.json or generation_config.json: invalid literal"),
        ("config.json", {"tie_word_embeddings": False}, "marian: its weights lack lm_head.weight, which tie_word"),
        ("config.json", {"decoder_start_token_id": 4000}, "its vocabulary has rows from 0 to 4000, and its weights"),
        ("config.json", {"decoder_start_token_id": -1}, "its vocabulary has rows from -1 to "),
        ("generation_config.json", {"num_beams": 5000}, "or generation_config.json: decode.beam_size=5000: must be"),
        ("vocab.json", {">>fra<<": 1}, "vocab.json: holds language codes .>>fra<<.: a model for several languages"),
        ("vocab.json", {"▁tea": 900}, "its vocabulary has rows from 0 to 900, and its weights have"),
        ("vocab.json", {"</s>": None}, "vocab.json: must give each piece a number; '</s>' has none"),
    ],
)
def test_what_cannot_be_imported_is_one_line(file, change, message, tmp_path):
    make_marian(tmp_path / "marian")
    path = tmp_path / "marian" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")
    assert not (tmp_path / "run").exists()


def test_files_that_are_missing_or_broken(tmp_path):
    make_marian(tmp_path / "marian")
    (tmp_path / "marian" / "target.spm").write_bytes(b"\xff\xff no model")
    with pytest.raises(ValueError, match="target.spm: no SentencePiece model"):
        import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")
    (tmp_path / "marian" / "target.spm").unlink()
    with pytest.raises(ValueError, match="target.spm: cannot be read"):
        import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("mine")
    with pytest.raises(ValueError, match="run: exists; choose a new folder"):
        import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")


def test_source_pieces_that_marian_lacks_are_read_as_unknown(tmp_path):
    make_marian(tmp_path / "marian")
    path = tmp_path / "marian" / "vocab.json"
    vocabulary = json.loads(path.read_text())
    lost = next(piece for piece in vocabulary if piece.startswith("▁") and len(piece) > 1)
    vocabulary["▁never seen"] = vocabulary.pop(lost)
    path.write_text(json.dumps(vocabulary))
    import_marian(tmp_path / "marian", tmp_path / "run", "en", "de")
    tokenizers = load_tokenizers(tmp_path / "run")
    assert "▁never seen" in tokenizers.target.pieces(list(range(tokenizers.target.size)))
    texts = sentences(12, seed=4)
    found = [text.strip() for text in load_translator(tmp_path / "run", "cpu").translate(texts)]
    assert found == translations_of(tmp_path / "marian", texts)
