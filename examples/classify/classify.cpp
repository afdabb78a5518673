// Names what a picture shows: a compiled model called from C++.    classify PICTURE.rgb    (224 x 224 pixels, three bytes each)
#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <numeric>

#include "mobilenet.h"

namespace {

alignas(16) std::array<std::uint8_t, 224 * 224 * 3> pixels;
alignas(16) std::array<std::uint8_t, 1001> scores;
constexpr int shown = 3;

bool read(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return static_cast<bool>(file.read(reinterpret_cast<char *>(pixels.data()), pixels.size()));
}

}  // namespace

int main(int count, char **arguments) {
  if (count != 2 || !read(arguments[1])) {
    std::cerr << "usage: " << arguments[0] << " PICTURE.rgb, a file of " << pixels.size() << " bytes\n";
    return 2;
  }
  const std::array<const void *, MOBILENET_NUM_INPUTS> inputs{pixels.data()};
  const std::array<void *, MOBILENET_NUM_OUTPUTS> outputs{scores.data()};
  if (mobilenet_run(inputs.data(), outputs.data()) != 0) {
    std::cerr << "out of memory\n";
    return 1;
  }
  mobilenet_close();
  std::array<int, scores.size()> classes;
  std::iota(classes.begin(), classes.end(), 0);
  std::stable_sort(classes.begin(), classes.end(), [](int a, int b) { return scores[a] > scores[b]; });
  for (int k = 0; k < shown; ++k) {
    std::cout << classes[k] << ' ' << int{scores[classes[k]]} << '\n';
  }
  return 0;
}
