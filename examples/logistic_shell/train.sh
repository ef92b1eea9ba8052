#!/bin/sh
# A logistic regression in awk: the protocol of docs/trainers.md needs no Python.
# Values come as arguments; the paths of the attempt stand in the document that BATCHSCALE_TRIAL names.
# It pauses by leaving: at until_step it saves its weights and exits with 0, and goes on from them when started again.
learning_rate=$1 batch_size=$2 seed=$3 until_step=$4 checkpoint=$5 every=$6
reports=$(sed -n 's/.*"reports": "\(.*\)".*/\1/p' "$BATCHSCALE_TRIAL")
start=0 weights="0 0 0"
if [ -f "$checkpoint/weights" ]; then read -r start weights < "$checkpoint/weights"; fi

awk -v rate="$learning_rate" -v size="$batch_size" -v seed="$seed" -v until="$until_step" -v every="$every" \
    -v start="$start" -v weights="$weights" -v reports="$reports" -v state="$checkpoint/weights" '
function normal() { return sqrt(-2 * log(1 - rand())) * cos(6.283185307 * rand()) }
function draw()   { label = rand() < 0.5; x = normal() + (label ? 1 : -1); y = normal() + (label ? 1 : -1) }
function chance() { return 1 / (1 + exp(-(w[1] + w[2] * x + w[3] * y))) }
function measure(step,    wrong, i) {
    srand(1); wrong = 0
    for (i = 0; i < 1000; i++) { draw(); wrong += (chance() > 0.5) != label }
    printf "{\"step\": %d, \"metrics\": {\"val/error\": %.6f}}\n", step, wrong / 1000 >> reports
    fflush(reports)
}
BEGIN {
    split(weights, w, " ")
    for (step = start + 1; step <= until; step++) {
        srand(seed * 1000003 % 2147483647 + step); g1 = g2 = g3 = 0
        for (i = 0; i < size; i++) { draw(); d = chance() - label; g1 += d; g2 += d * x; g3 += d * y }
        w[1] -= rate * g1 / size; w[2] -= rate * g2 / size; w[3] -= rate * g3 / size
        if (step % every == 0) measure(step)
    }
    printf "%d %.17g %.17g %.17g\n", until, w[1], w[2], w[3] > (state ".writing")
    close(state ".writing")
}' || exit 1
mv "$checkpoint/weights.writing" "$checkpoint/weights"
echo "{\"saved\": $until_step}" >> "$reports"
