// The program `gau-launch`.
#include "train/cli/launch.h"

int main(int argc, char** argv) { return gau::cli::launch(argc, argv); }
