// Classifies images with a model that is one C file: no runtime, no allocation in the model, the same on every processor.
//
//   tilewright compile model.onnx -o model.c --input-shapes "x:[1,3,64,64]"
//   cc -O3 -ffp-contract=off -fno-strict-aliasing -c model.c
//   c++ -O2 -o classify classify.cpp model.o
//   ./classify image.raw
//
// A file holds the input `x` as raw floats. What is printed are the best classes with their scores.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <vector>

#include "model.h"

namespace {

constexpr int most_shown = 3;

bool read_image(const char *path, std::vector<float> &image) {
  std::ifstream file(path, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(image.size() * sizeof(float));
  file.read(reinterpret_cast<char *>(image.data()), bytes);
  return file.gcount() == bytes;
}

std::vector<int> best(const std::vector<float> &scores, int count) {
  std::vector<int> classes(scores.size());
  std::iota(classes.begin(), classes.end(), 0);
  std::stable_sort(classes.begin(), classes.end(), [&scores](int a, int b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  classes.resize(std::min(classes.size(), static_cast<std::size_t>(count)));
  return classes;
}

}  // namespace

int main(int count, char **paths) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s IMAGE…\n", paths[0]);
    return 2;
  }
  std::vector<float> image(MODEL_X_SIZE), scores(MODEL_Y_SIZE);
  for (int k = 1; k < count; ++k) {
    if (!read_image(paths[k], image)) {
      std::fprintf(stderr, "%s: not %d floats\n", paths[k], static_cast<int>(MODEL_X_SIZE));
      return 1;
    }
    model_run(image.data(), scores.data());
    for (const int c : best(scores, most_shown)) {
      std::printf("%s %d %.6f\n", paths[k], c, static_cast<double>(scores[static_cast<std::size_t>(c)]));
    }
  }
  return 0;
}
