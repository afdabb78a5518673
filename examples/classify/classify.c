/* Names what a picture shows: a compiled model called from C.    classify PICTURE.rgb    (224 x 224 pixels, three bytes each) */
#include <stdio.h>

#include "mobilenet.h"

enum { PIXEL_BYTES = 224 * 224 * 3, CLASSES = 1001, SHOWN = 3 };

static unsigned char pixels[PIXEL_BYTES] __attribute__((aligned(16)));
static unsigned char scores[CLASSES] __attribute__((aligned(16)));

static int best(void) {
  int found = 0;
  for (int k = 1; k < CLASSES; ++k) {
    if (scores[k] > scores[found]) {
      found = k;
    }
  }
  return found;
}

int main(int count, char **arguments) {
  FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
  if (file == NULL || fread(pixels, sizeof pixels, 1, file) != 1) {
    fprintf(stderr, "usage: %s PICTURE.rgb, a file of %d bytes\n", arguments[0], PIXEL_BYTES);
    return 2;
  }
  fclose(file);
  const void *inputs[MOBILENET_NUM_INPUTS] = {pixels};
  void *outputs[MOBILENET_NUM_OUTPUTS] = {scores};
  if (mobilenet_run(inputs, outputs) != 0) {
    fputs("out of memory\n", stderr);
    return 1;
  }
  mobilenet_close();
  for (int k = 0; k < SHOWN; ++k) {
    const int found = best();
    printf("%d %d\n", found, scores[found]);
    scores[found] = 0;
  }
  return 0;
}
