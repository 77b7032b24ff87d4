import math

import numpy as np
import torch

from claw.engine.worker import sampler
from claw.engine.worker.sampler import draw
from claw.records import Sampling

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05]))


def rows(sampling, n=4000, logits=LOGITS):
    u = np.random.default_rng(0).random(n)
    return draw(logits.repeat(n, 1), [sampling] * n, u)


def shares(ids, n=5):
    return np.bincount(ids, minlength=n) / len(ids)


def test_greedy_takes_the_best_and_ties_go_to_the_lowest_id():
    logits = torch.zeros(2, 1000)
    logits[:, [700, 300, 999]] = 2.0
    drawn = draw(logits, [Sampling(temperature=0, logprobs_k=5)] * 2, [0.99, 0.1])
    assert drawn.ids.tolist() == [300, 300]
    assert drawn.topk_ids[0].tolist() == [300, 700, 999, 0, 1]
    np.testing.assert_allclose(drawn.logps, logits.log_softmax(-1)[:, 300], atol=1e-6)


def test_untruncated_draws_follow_the_softmax_at_the_temperature():
    for t in (1.0, 0.5, 2.0):
        drawn = rows(Sampling(temperature=t))
        truth = (LOGITS / t).softmax(-1).numpy()
        np.testing.assert_allclose(shares(drawn.ids), truth, atol=0.03)
        np.testing.assert_allclose(drawn.logps, np.log(truth[drawn.ids]), atol=1e-5)
        assert drawn.kept_ids[0] is None


def test_truncated_draws_carry_both_log_probs_and_what_was_kept():
    drawn = rows(Sampling(top_p=0.6))
    assert drawn.kept_ids[0].tolist() == [1, 3]
    assert set(drawn.ids.tolist()) == {1, 3}
    np.testing.assert_allclose(drawn.logps[0], LOGITS[drawn.ids[0]], atol=1e-5)
    np.testing.assert_allclose(
        drawn.sampling_logps, np.log(np.where(drawn.ids == 1, 0.4, 0.25) / 0.65), atol=1e-5)
    np.testing.assert_allclose(shares(drawn.ids)[1], 0.4 / 0.65, atol=0.03)


def test_top_p_is_taken_of_what_top_k_left():
    # of {1: .4, 3: .25, 2: .2} renormalised, 0.75 is reached by two
    assert rows(Sampling(top_p=0.75, top_k=3), 1).kept_ids[0].tolist() == [1, 3]
    assert rows(Sampling(top_p=0.75), 1).kept_ids[0].tolist() == [1, 3, 2]
    assert rows(Sampling(top_k=1), 1).kept_ids[0].tolist() == [1]


def test_ties_at_the_edge_of_truncation_keep_the_lowest_ids():
    logits = torch.zeros(1, 5000)
    logits[0, 4000] = 1.0
    drawn = draw(logits, [Sampling(top_k=3)], [0.999])
    assert drawn.kept_ids[0].tolist() == [4000, 0, 1] and drawn.ids[0] == 1


def test_rows_that_need_more_than_the_candidates_are_exact_too():
    logits = torch.randn(3, 4000, generator=torch.Generator().manual_seed(0)) * 0.1
    settings = [Sampling(top_p=0.9), Sampling(top_k=3000), Sampling(top_k=5)]
    drawn = draw(logits, settings, [0.3, 0.6, 0.9])
    for i, s in enumerate(settings):
        order = np.argsort(-logits[i].numpy(), kind="stable")
        p = logits[i].double().softmax(-1).numpy()[order]
        wanted = s.top_k or int(np.searchsorted(p.cumsum(), 0.9) + 1)
        assert drawn.kept_ids[i].tolist() == order[:wanted].tolist()
        share = p[:wanted] / p[:wanted].sum()
        place = drawn.kept_ids[i].tolist().index(drawn.ids[i])
        np.testing.assert_allclose(drawn.sampling_logps[i], np.log(share[place]), atol=1e-4)
    assert sampler.CANDIDATES < 4000


def test_a_row_does_not_depend_on_the_others():
    logits = torch.randn(6, 700, generator=torch.Generator().manual_seed(1)) * 3
    settings = [Sampling(), Sampling(temperature=0), Sampling(top_p=0.5), Sampling(top_k=9),
                Sampling(temperature=0.3, logprobs_k=9), Sampling(logprobs_k=0)]
    u = [0.1, 0.5, 0.9, 0.7, 0.3, 0.2]
    together = draw(logits, settings, u)
    for i, s in enumerate(settings):
        one = draw(logits[i : i + 1], [s], u[i : i + 1])
        assert one.ids[0] == together.ids[i]
        np.testing.assert_allclose(one.logps[0], together.logps[i], atol=1e-6)


def test_impossible_ids_are_never_drawn():
    logits = torch.full((1, 50), -math.inf)
    logits[0, [7, 20]] = 0.0
    for u in (0.0, 0.499999, 0.5, 1 - 2**-53):
        assert int(draw(logits, [Sampling()], [u]).ids[0]) in (7, 20)
        assert int(draw(logits, [Sampling(top_p=0.99)], [u]).ids[0]) in (7, 20)
