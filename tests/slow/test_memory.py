"""Memory stays bounded however large the corpus is: in tokenizer training, and while batches are read."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MB = 1 << 20
PAIRS = 2_000_000
TOKENIZER_LIMIT_MB = 2000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc/PID/smaps_rollup"),
]

TRAIN_TOKENIZER = """
import json, resource, sys, warnings
from mt.config import CorpusConfig, DataConfig, TokenizerConfig
from mt.data.corpus import read_corpus
from mt.tokenizer import train_tokenizers

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pairs = read_corpus(CorpusConfig(path=sys.argv[1]), DataConfig(), "data.train.main")
    tokenizer = train_tokenizers(pairs, TokenizerConfig(), 1).source
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
pieces = tokenizer.pieces(list(range(tokenizer.size)))
print(json.dumps({"peak": peak, "pieces": pieces, "warnings": [str(w.message) for w in caught]}))
"""

READ_THRICE = """
import json, statistics, sys, threading
from pathlib import Path
from mt.config import CorpusConfig, DataConfig, TrainConfig, TrainerConfig
from mt.data.encoded import EncodedCorpus
from mt.tokenizer import TokenizerPair
from mt.training.stream import BatchStream

def pss():  # in MB, of this process and all below it: all memory, and that which no file backs
    total, anonymous, waiting = 0, 0, ["self"]
    while waiting:
        process = Path("/proc") / waiting.pop()
        try:
            rollup = (process / "smaps_rollup").read_text()
            sizes = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
            total, anonymous = total + sizes["Pss:"], anonymous + sizes["Pss_Anon:"]
            for task in (process / "task").iterdir():
                waiting += (task / "children").read_text().split()
        except OSError:  # it has ended
            pass
    return total / 1024, anonymous / 1024

corpus, tokenizers = EncodedCorpus(Path(sys.argv[1])), TokenizerPair.load(Path(sys.argv[2]))
trainer = TrainerConfig(prefetch_updates=int(sys.argv[3]))
data = DataConfig(train={"main": CorpusConfig(path="encoded already")}, strip_final_stop_probability=0.5)
config = TrainConfig(trainer=trainer, data=data)
stream = BatchStream(corpus, tokenizers, config, 4)
samples, pairs, finished = [[], [], []], 0, threading.Event()

def sample():
    while not finished.wait(0.5):
        samples[min(stream.epoch, 2)].append(pss())

thread = threading.Thread(target=sample)
thread.start()
while stream.epoch < 3:
    pairs += sum(len(batch.pairs) for batch in stream.next_window().batches)
finished.set()
thread.join()
stream.close()
peak = max(total for values in samples for total, _ in values)
medians = [statistics.median(anonymous for _, anonymous in values) for values in samples]
print(json.dumps({"peak": peak, "medians": medians, "seen": pairs, "pairs": len(corpus)}))
"""

ENCODE = """
import sys
from pathlib import Path
from mt.config import CorpusConfig, DataConfig, TokenizerConfig
from mt.data.corpus import read_corpus
from mt.data.encoded import encode_corpus
from mt.tokenizer import train_tokenizers

path, place = sys.argv[1:]
data = DataConfig(train={"main": CorpusConfig(path=path)}, cache_dir=f"{place}/cache")
pairs = read_corpus(data.train["main"], data, "data.train.main")
tokenizers = train_tokenizers(pairs, TokenizerConfig(algorithm="bpe", training_sentences=5000), 1)
tokenizers.save(Path(place) / "tokenizer")
print(encode_corpus(data.train, data, tokenizers).folder)
"""


def run(program: str, *arguments: object) -> str:
    """Returns what the program prints in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout.decode()


def sentences(letters: str, count: int, words: int, separator: str, seed: int) -> list[str]:
    generator = random.Random(seed)
    known = ["".join(generator.choices(letters, k=generator.randint(1, 9))) for _ in range(20_000)]
    weights = [1 / (rank + 10) for rank in range(len(known))]
    return [separator.join(generator.choices(known, weights, k=words)) for _ in range(count)]


def write_corpus(path: Path, blocks: list[tuple[list[str], list[str], int]]) -> None:
    """Writes, for each block, its number of random pairs of its sentences."""
    generator = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        for sources, targets, pairs in blocks:
            for _ in range(pairs // 1000):
                rows = zip(generator.choices(sources, k=1000), generator.choices(targets, k=1000), strict=True)
                file.write("".join(f"{source}\t{target}\n" for source, target in rows))


def test_a_tokenizer_of_a_big_corpus_needs_less_than_2_gb_and_sees_all_of_it(tmp_path) -> None:
    latin, cyrillic = "abcdefghijklmnopqrstuvwxyz", "абвгдежзиклмнопрстуфхцчшэюя"
    han = "".join(map(chr, range(0x4E00, 0x5300)))
    targets = sentences(han, 20_000, 12, "", 3)
    blocks = [
        (sentences(latin, 20_000, 20, " ", 1), targets, 1_300_000),
        (sentences(cyrillic, 20_000, 20, " ", 2), targets, 200_000),
    ]
    write_corpus(tmp_path / "big.tsv", blocks)
    assert (tmp_path / "big.tsv").stat().st_size > 300 * MB
    result = json.loads(run(TRAIN_TOKENIZER, tmp_path / "big.tsv"))
    print(f"tokenizer: {result['peak']:.0f} MB; {result['warnings']}")
    assert result["peak"] < TOKENIZER_LIMIT_MB
    assert any("random sample of" in message and "of 1500000 pairs" in message for message in result["warnings"])
    assert any(len(piece) > 2 and set(piece) <= {"▁", *cyrillic} for piece in result["pieces"])


@pytest.fixture(scope="module")
def encoded(tmp_path_factory) -> tuple[int, str, Path]:
    """The size of a big corpus in MB, the folder of its encoded form, and that of its tokenizers."""
    place = tmp_path_factory.mktemp("big")
    sources = sentences("abcdefghijklmnopqrstuvwxyz", 20_000, 9, " ", 1)
    targets = sentences("".join(map(chr, range(0x4E00, 0x4F00))), 20_000, 4, "", 2)
    write_corpus(place / "big.tsv", [(sources, targets, PAIRS)])
    folder = run(ENCODE, place / "big.tsv", place).strip()
    return (place / "big.tsv").stat().st_size // MB, folder, place / "tokenizer"


@pytest.mark.parametrize("prefetch_updates", [0, 4])
def test_reading_a_big_corpus_again_and_again_costs_little_memory(encoded, prefetch_updates: int) -> None:
    text_mb, folder, tokenizers = encoded
    result = json.loads(run(READ_THRICE, folder, tokenizers, prefetch_updates))
    # Pages of the corpus file come and go as the system likes; the plan of an epoch adds to its first second only.
    # From the second on there is the memory of the thread that plans the next one as well.
    _, second, third = result["medians"]
    print(f"prefetch_updates={prefetch_updates}: text {text_mb} MB, {result}")
    assert result["seen"] == 3 * result["pairs"] > 2.9 * PAIRS
    assert result["peak"] <= text_mb + 500
    assert third <= 1.15 * second  # over eight epochs: 248, 278, 280, 295 and so on to the end
