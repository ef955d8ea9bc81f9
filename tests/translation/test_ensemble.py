"""The search of an ensemble against all translations, scored with the mean of its members' probabilities."""

import pytest
import torch

from mt.translation.beam import beam_search
from mt.translation.ensemble import Ensemble, Memories
from tests.translation.table_models import TableModel, all_translations, probability_of, random_log_probs

V, LIMIT = 7, 5


@pytest.mark.parametrize("members", [2, 3])
def test_a_beam_that_drops_nothing_finds_the_best_by_the_mean_of_probabilities(members):
    tables = [random_log_probs(seed, V, sharpness=2.0) for seed in range(members)]

    def mean(sentence, prefix):
        return sum(table(sentence, prefix).double().exp() for table in tables).div(members).log()

    sentences = torch.arange(2)
    ensemble, memory = Ensemble([TableModel(table) for table in tables]), Memories([sentences] * members)
    found = beam_search(ensemble, memory, None, [LIMIT] * 2, 4**LIMIT, 1.0, 5)
    for sentence in range(2):

        def best(log_probs, number=sentence):
            every = all_translations(V, LIMIT)
            scored = ((probability_of(log_probs, number, t) / (len(t) + 1), list(t)) for t in every)
            return sorted(scored, reverse=True)[:5]

        assert [h.tokens for h in found[sentence]] == [tokens for _, tokens in best(mean)]
        assert [h.score for h in found[sentence]] == pytest.approx([score for score, _ in best(mean)], abs=1e-5)
        assert all(best(table)[0][0] != pytest.approx(best(mean)[0][0], abs=1e-3) for table in tables)
