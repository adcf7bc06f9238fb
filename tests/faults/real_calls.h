// The calls behind the wrappers of faulty_calls.cc.
#pragma once

#include <stddef.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/types.h>

extern "C" {
ssize_t __real_pread(int fd, void* data, size_t size, off_t offset);
ssize_t __real_pwrite(int fd, const void* data, size_t size, off_t offset);
int __real_open(const char* path, int flags, ...);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_ftruncate(int fd, off_t size);
int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __real_mkdir(const char* path, mode_t mode);
int __real_rename(const char* from, const char* to);
int __real_renameat2(int from_directory, const char* from, int to_directory, const char* to,
                     unsigned flags);
int __real_link(const char* from, const char* to);
int __real_linkat(int from_directory, const char* from, int to_directory, const char* to,
                  int flags);
int __real_unlink(const char* path);
int __real_unlinkat(int directory, const char* path, int flags);
int __real_rmdir(const char* path);
int __real_flock(int fd, int operation);
int __real_statvfs(const char* path, struct statvfs* info);
int __real_fstatfs(int fd, struct statfs* info);

ssize_t __wrap_pread(int fd, void* data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void* data, size_t size, off_t offset);
int __wrap_open(const char* path, int flags, ...);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_mkdir(const char* path, mode_t mode);
int __wrap_rename(const char* from, const char* to);
int __wrap_renameat2(int from_directory, const char* from, int to_directory, const char* to,
                     unsigned flags);
int __wrap_link(const char* from, const char* to);
int __wrap_linkat(int from_directory, const char* from, int to_directory, const char* to,
                  int flags);
int __wrap_unlink(const char* path);
int __wrap_unlinkat(int directory, const char* path, int flags);
int __wrap_rmdir(const char* path);
int __wrap_flock(int fd, int operation);
int __wrap_statvfs(const char* path, struct statvfs* info);
int __wrap_fstatfs(int fd, struct statfs* info);
}
