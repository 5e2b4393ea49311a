"""SparseCSE's tables: what is rewound, and what scores it."""

from studies.engine.recipes import Recipes
from studies.sparse_cse.tables import pruned, sparsity_encoders, sparsity_scores


def test_encoders_are_rewound_and_trained_again_as_they_were(recipes: Recipes) -> None:
    experiment = sparsity_encoders(recipes)
    points = {row.key: row.point for row in experiment.table.rows}
    wholes = {point["encoder"]: experiment.models[key] for key, point in points.items() if "share" not in point}
    assert len(points) == len(wholes) * (1 + 2 * 2)
    for key, point in points.items():
        model, whole = experiment.models[key], wholes[point["encoder"]]
        if model != whole:
            [left] = model.needs
            assert (left.stage, left.parents, left.config.share) == ("prune", (whole, *whole.parents), point["share"])
            assert model.config == whole.config


def test_a_fine_tuned_head_scores_what_is_then_rewound(recipes: Recipes) -> None:
    models = sparsity_scores(recipes).models
    for share in (0.1, 0.3):
        [by_sentiment], [by_similarity] = (models[pruned(share, task)].needs for task in ("sentiment", "similarity"))
        assert by_sentiment.parents == (recipes.finetune(recipes.start), recipes.start)
        assert (by_sentiment.config.score, by_sentiment.config.task) == ("task", "sentiment")
        assert by_similarity.parents == (recipes.start,)
        assert (by_similarity.config.score, by_similarity.config.task) == ("task", "similarity")
