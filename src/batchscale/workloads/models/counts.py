"""How many parameters the listed workloads have, so that listing them needs no jax.

The numbers follow from the models; a test works every one of them out again.
"""

from collections.abc import Mapping

NUM_PARAMETERS: Mapping[tuple[str, str], int] = {
    ("cifar_10", "resnet_8"): 75_050,
    ("common_crawl", "transformer_base"): 31_193_088,
    ("fashion_mnist", "simple_cnn_base"): 3_274_634,
    ("imagenet", "resnet_50"): 25_549_352,
    ("imagenet", "vgg_11"): 132_863_336,
    ("imagenet_subsets/imagenet_half_classes", "resnet_50"): 24_524_852,
    ("imagenet_subsets/imagenet_half_images", "resnet_50"): 25_549_352,
    ("lm1b", "lstm"): 62_791_680,
    ("lm1b", "transformer_base"): 35_286_016,
    ("lm1b", "transformer_narrow_and_shallow"): 9_769_472,
    ("lm1b", "transformer_shallow"): 22_684_672,
    ("lm1b", "transformer_wide"): 108_320_768,
    ("mnist", "fc_1024"): 814_090,
    ("mnist", "fc_1024_1024"): 1_863_690,
    ("mnist", "fc_1024_1024_1024"): 2_913_290,
    ("mnist", "fc_128_128_128"): 134_794,
    ("mnist", "fc_2048_2048_2048"): 10_020_874,
    ("mnist", "fc_256_256_256"): 335_114,
    ("mnist", "fc_512_512_512"): 932_362,
    ("mnist", "fc_64_64_64"): 59_210,
    ("mnist", "simple_cnn_base"): 3_274_634,
    ("mnist", "simple_cnn_narrow"): 821_706,
    ("mnist", "simple_cnn_wide"): 13_074_186,
    ("mnist_subsets/mnist_13750", "simple_cnn_base"): 3_274_634,
    ("mnist_subsets/mnist_27500", "simple_cnn_base"): 3_274_634,
    ("mnist_subsets/mnist_55000", "simple_cnn_base"): 3_274_634,
    ("mnist_subsets/mnist_6875", "simple_cnn_base"): 3_274_634,
    ("open_images_v4", "resnet_50"): 38_224_466,
    ("solution_quality/fashion_mnist", "simple_cnn_base"): 3_274_634,
    ("solution_quality/mnist", "simple_cnn_base"): 3_274_634,
    ("digits", "fc_64"): 4_810,
    ("ptb", "transformer_shallow"): 11_420_672,
    ("noisy_quadratic", "quadratic"): 100,
}
