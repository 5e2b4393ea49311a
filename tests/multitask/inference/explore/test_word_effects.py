"""The effect of a word is the change of the prediction when somebody deletes it."""

import pytest

from multitask.inference.explore.word_effects import effects, explained_number, without, words_of
from multitask.models.predictions import Prediction

TEXT = "  A   gem, truly.\nFunny "


def test_words_are_those_between_spaces():
    assert [TEXT[word.start : word.end] for word in words_of([TEXT])] == ["A", "gem,", "truly.", "Funny"]
    assert words_of(["", " "]) == []


def test_a_row_without_a_word_has_the_others():
    for number, word in enumerate(words_of([TEXT])):
        left = without([TEXT], word)
        assert isinstance(left, str)
        assert left.split() == [text for place, text in enumerate(TEXT.split()) if place != number]


def test_a_pair_without_a_word_keeps_the_other_sentence():
    first, second, third = words_of(["one two", "three"])
    assert without(["one two", "three"], first) == ("two", "three")
    assert without(["one two", "three"], second) == ("one", "three")
    assert without(["one two", "three"], third) == ("one two", "")


def test_effects_are_differences_of_the_predicted_classs_probability():
    whole = Prediction("good", 0.7, {"bad": 0.3, "good": 0.7})
    partial = [Prediction("bad", 0.6, {"bad": 0.6, "good": 0.4}), Prediction("good", 0.9, {"bad": 0.1, "good": 0.9})]
    assert explained_number(whole) == "good"
    assert effects(whole, partial) == pytest.approx([0.3, -0.2])


def test_effects_of_several_labels_are_on_the_most_probable_one():
    whole = Prediction(probabilities={"a": 0.2, "b": 0.4})
    assert explained_number(whole) == "b"
    assert effects(whole, [Prediction(probabilities={"a": 0.9, "b": 0.1})]) == pytest.approx([0.3])


def test_effects_on_a_number_are_its_changes():
    assert explained_number(Prediction(value=2.0)) == "value"
    assert effects(Prediction(value=2.0), [Prediction(value=3.5)]) == [-1.5]
