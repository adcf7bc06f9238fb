#include "formats/hdf5/descriptor_driver.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "formats/hdf5/confined.h"

namespace ferry::hdf5 {
namespace {

struct File {
  H5FD_t base;  // filled by the library
  haddr_t end_of_addresses;
};

// This is global, because a driver can receive a pointer only through a copied property. A child
// reads only one file.
int g_fd = -1;
uint64_t g_file_bytes = 0;

H5FD_t* file_open(const char*, unsigned, hid_t, haddr_t) {
  auto* file = static_cast<File*>(std::calloc(1, sizeof(File)));
  return file == nullptr ? nullptr : &file->base;
}
herr_t file_close(H5FD_t* file) {
  std::free(file);
  return 0;
}
herr_t file_query(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr) *flags = 0;
  return 0;
}
haddr_t file_eoa(const H5FD_t* file, H5FD_mem_t) {
  return reinterpret_cast<const File*>(file)->end_of_addresses;
}
herr_t file_set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  reinterpret_cast<File*>(file)->end_of_addresses = end;
  return 0;
}
haddr_t file_eof(const H5FD_t*, H5FD_mem_t) { return g_file_bytes; }
herr_t file_read(H5FD_t*, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) {
  if (address > g_file_bytes || size > g_file_bytes - address) return -1;
  auto* out = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t got = ::pread(g_fd, out, size, static_cast<off_t>(address));
    if (got < 0 && errno == EINTR) continue;
    // The read failed or the file became shorter. Neither is a defect of the contents.
    if (got <= 0) ::_exit(kExitCannotRead);
    out += got;
    size -= static_cast<size_t>(got);
    address += static_cast<haddr_t>(got);
  }
  return 0;
}
herr_t file_write(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) { return -1; }

H5FD_class_t driver_class() {
  H5FD_class_t c;
  std::memset(&c, 0, sizeof c);
#if H5_VERSION_GE(1, 13, 0)
  c.version = H5FD_CLASS_VERSION;
  c.value = static_cast<H5FD_class_value_t>(512);  // any value that the library does not use
#endif
  c.name = "descriptor";
  c.maxaddr = static_cast<haddr_t>(INT64_MAX);
  c.fc_degree = H5F_CLOSE_STRONG;
  c.open = file_open;
  c.close = file_close;
  c.query = file_query;
  c.get_eoa = file_eoa;
  c.set_eoa = file_set_eoa;
  c.get_eof = file_eof;
  c.read = file_read;
  c.write = file_write;
  for (H5FD_mem_t& memory : c.fl_map) memory = H5FD_MEM_SUPER;
  return c;
}

}  // namespace

hid_t descriptor_driver() {
  static const H5FD_class_t driver = driver_class();
  static const hid_t id = H5FDregister(&driver);
  return id;
}

void read_from_descriptor(int fd, uint64_t file_bytes) {
  g_fd = fd;
  g_file_bytes = file_bytes;
}

}  // namespace ferry::hdf5
