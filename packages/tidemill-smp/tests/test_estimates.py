"""Estimated times of ops, which the cut uses if nothing was measured."""

import pytest
import tensorflow as tf

from smdistributed.modelparallel.tensorflow.engine.nodes import read_nodes

PRODUCTS_PER_UNIT = 10_000


def convolution(x, weights, data_format):
    return tf.nn.conv2d(x, weights, 1, "SAME", data_format)


def depthwise(x, weights, data_format):
    return tf.nn.depthwise_conv2d(x, weights, [1, 1, 1, 1], "SAME", data_format)


def transposed(x, weights, data_format):
    del data_format
    return tf.nn.conv2d_transpose(x, weights, (4, 10, 12, 24), 1)


def in_space(x, weights, data_format):
    del data_format
    return tf.nn.conv3d(x[:, None], weights[None], [1] * 5, "SAME")


@pytest.mark.parametrize(
    ("apply", "filter_shape", "data_format", "products"),
    [
        (convolution, (3, 3, 16, 24), "NHWC", 4 * 10 * 12 * 24 * 3 * 3 * 16),
        (convolution, (3, 3, 16, 24), "NCHW", 4 * 10 * 12 * 24 * 3 * 3 * 16),
        (depthwise, (3, 3, 16, 2), "NHWC", 4 * 10 * 12 * 32 * 3 * 3),
        (transposed, (3, 3, 24, 16), "NHWC", 4 * 10 * 12 * 16 * 3 * 3 * 24),
        (in_space, (3, 3, 16, 24), "NHWC", 4 * 10 * 12 * 24 * 3 * 3 * 16),
    ],
)
def test_a_convolution_and_its_gradients_cost_what_they_multiply(apply, filter_shape, data_format, products):
    with tf.Graph().as_default() as graph:
        x = tf.zeros((4, 10, 12, 16) if data_format == "NHWC" else (4, 16, 10, 12))
        weights = tf.zeros(filter_shape)
        tf.gradients(apply(x, weights, data_format), [x, weights])
        found = [node.work for node in read_nodes(graph) if "onv" in node.type]
    assert found == [pytest.approx(1 + products / PRODUCTS_PER_UNIT)] * 3
