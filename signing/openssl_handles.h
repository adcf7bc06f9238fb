// Owners of OpenSSL objects, and OpenSSL's errors as text. Private to signing/.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::signing {

struct OpensslDeleter {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
  // Frees the list, but not its certificates.
  void operator()(STACK_OF(X509) * list) const { sk_X509_free(list); }
};
template <class T>
using Owned = std::unique_ptr<T, OpensslDeleter>;
using Certificates = std::vector<Owned<X509>>;

// Returns a BIO that reads from `text`, which must outlive it.
Owned<BIO> reader_of(std::string_view text);
// Returns all that was written to a BIO_s_mem().
std::string text_of(BIO* bio);
// Returns the last error of this thread's queue and empties the queue.
std::string take_openssl_error();

}  // namespace ferry::signing
