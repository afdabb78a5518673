/* Reads the inputs of a model one behind the other, and writes its outputs: what stands in the MODEL_ macros is given when it is compiled. */
#include <stdio.h>

#include MODEL_HEADER

static unsigned char input[MODEL_INPUT_BYTES] __attribute__((aligned(64))), output[MODEL_OUTPUT_BYTES] __attribute__((aligned(64)));

int main(void) {
  const void *inputs[] = {input};
  void *outputs[] = {output};
  if (fread(input, sizeof input, 1, stdin) != 1) {
    return 2;
  }
  const int status = MODEL_RUN(inputs, outputs);
  MODEL_CLOSE();
  return status || fwrite(output, sizeof output, 1, stdout) != 1;
}
