// The program `gau`.
#include "train/cli/commands.h"

int main(int argc, char** argv) { return gau::cli::run(argc, argv); }
