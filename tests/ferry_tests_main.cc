// main() of ferry_tests. Like `ferry`, it can be started as the HDF5 reader.

#include <gtest/gtest.h>

#include "formats/hdf5/reader_process.h"

int main(int argc, char** argv) {
  ferry::hdf5::serve_if_asked(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
