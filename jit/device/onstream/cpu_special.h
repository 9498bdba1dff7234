// CUDA's special functions and norms that C has not, for host compilers. Follows
// cpu_functions.h. The float forms are computed in double.
#ifndef ONSTREAM_CPU_SPECIAL_H_
#define ONSTREAM_CPU_SPECIAL_H_

namespace ons_cpu {

constexpr double two_by_sqrt_pi = 1.12837916709551257390;
constexpr double sqrt_half = 0.70710678118654752440;

// Sum of squares, with the largest at 1, and what it was divided by squared: nothing
// overflows, and nothing that matters underflows.
struct squares {
  double largest = 0, sum = 0;
  void find_largest(double x) { largest = ::fmax(largest, ::fabs(x)); }
  void add(double x) {
    const double scaled = ::ldexp(x, -exponent());
    sum += scaled * scaled;
  }
  int exponent() const {
    return largest > 0 && largest < HUGE_VAL ? ::ilogb(largest) : 0;
  }
  double norm() const {
    return largest == HUGE_VAL ? HUGE_VAL : ::ldexp(::sqrt(sum), exponent());
  }
  double reciprocal() const {
    return largest == HUGE_VAL ? 0.0 : ::ldexp(1.0 / ::sqrt(sum), -exponent());
  }
};
inline squares squares_of(int count, const double* x) {
  squares result;
  for (int i = 0; i < count; ++i) result.find_largest(x[i]);
  for (int i = 0; i < count; ++i) result.add(x[i]);
  return result;
}
inline squares squares_of(int count, const float* x) {
  squares result;
  for (int i = 0; i < count; ++i) result.find_largest(x[i]);
  for (int i = 0; i < count; ++i) result.add(x[i]);
  return result;
}

// exp(x * x), the rounding of the square made up for.
inline double exp_square(double x) {
  const double square = x * x;
  return ::exp(square) * (1.0 + ::fma(x, x, -square));
}

// exp(x * x) * erfc(x).
inline double scaled_erfc(double x) {
  if (x < -26.7) return HUGE_VAL;
  if (x < 25.0) return exp_square(x) * ::erfc(x);
  // The asymptotic series; its eighth term is below a quarter of the last bit.
  const double step = 0.5 / x / x;
  double sum = 1.0, term = 1.0;
  for (int n = 1; n <= 8; ++n) sum += term *= -(2 * n - 1) * step;
  return 0.5 * two_by_sqrt_pi / x * sum;
}

// The inverse of erfc on (0, 1], by Newton's method on its logarithm: erfc itself
// underflows where this does not.
inline double inverse_erfc_lower(double y) {
  const double log_y = ::log(y);
  // erfc(x) is about exp(-x * (x + 1.1)).
  double x = ::sqrt(0.3 - log_y) - 0.55;
  if (x < 0) x = 0;
  for (int i = 0; i < 30; ++i) {
    const double scaled = scaled_erfc(x);
    // log(erfc(x) / y), without a logarithm's rounding where they are close.
    const double ratio = x < 20 ? ::erfc(x) / y : 0.0;
    const double distance = ratio > 0.5 && ratio < 2.0 ? ::log1p((::erfc(x) - y) / y)
                                                       : ::log(scaled) - x * x - log_y;
    const double step = distance * scaled / two_by_sqrt_pi;
    x += step;
    if (::fabs(step) <= 1e-17 * ::fabs(x)) break;
  }
  return x;
}

// The same by Halley's method on erf(x) = y: for |y| up to about a half.
inline double inverse_erf_central(double y) {
  double x = y / two_by_sqrt_pi;
  for (int i = 0; i < 5; ++i) {
    const double step = (::erf(x) - y) / (two_by_sqrt_pi * ::exp(-x * x));
    x -= step / (1.0 + x * step);
  }
  return x;
}

inline double inverse_erfc(double y) {
  if (!(y >= 0.0 && y <= 2.0)) return NAN;
  if (y == 0.0) return HUGE_VAL;
  if (y > 0.5 && y < 1.5) return inverse_erf_central(1.0 - y);
  return y < 1.0    ? inverse_erfc_lower(y)
         : y == 2.0 ? -HUGE_VAL
                    : -inverse_erfc_lower(2.0 - y);
}
inline double inverse_erf(double y) {
  if (::fabs(y) < 0.5) return y == 0.0 ? y : inverse_erf_central(y);
  return y < 0 ? -inverse_erfc(1.0 + y) : inverse_erfc(1.0 - y);
}

// The standard normal distribution: erfc at x / sqrt(2), that quotient's rounding made up
// for.
inline double normal(double x) {
  const double at = -x * sqrt_half;
  if (!(::fabs(at) < 28.0)) return x != x ? x : x < 0 ? 0.0 : 1.0;
  constexpr double sqrt_half_low = -4.8336466567264567e-17;
  const double low = ::fma(-x, sqrt_half, -at) - x * sqrt_half_low;
  return 0.5 * (::erfc(at) - two_by_sqrt_pi * ::exp(-at * at) * low);
}

// The modified Bessel functions of the first kind: the power series, none of whose terms
// is negative, and from 20 on the asymptotic one, whose least term is below exp(-40).
inline double bessel_i(int order, double x) {
  const double size = ::fabs(x);
  double sum = 1.0, term = 1.0, factor = order ? 0.5 * size : 1.0;
  if (size < 20.0) {
    for (int k = 1; term > 1e-18 * sum; ++k) {
      sum += term *= 0.25 * size * size / (double(k) * (k + order));
    }
  } else {
    for (int k = 1; ::fabs(term) > 1e-18; ++k) {
      sum += term *= (double(2 * k - 1) * (2 * k - 1) - 4 * order) / (8.0 * k * size);
    }
    // The whole power would overflow too early.
    const double root = ::exp(0.5 * ::fmin(size, 1000.0));
    factor = root / ::sqrt(6.28318530717958647693 * ::fmin(size, 1000.0)) * root;
  }
  return order && x < 0 ? -factor * sum : factor * sum;
}

}  // namespace ons_cpu

namespace ons_cpu_dialect {

#define ONS_CPU_SPECIAL(name, function)                                         \
  inline double name(double x) { return ons_cpu::function(x); }                 \
  inline float name##f(float x) { return float(ons_cpu::function(double(x))); } \
  inline float name(float x) { return name##f(x); }
ONS_CPU_SPECIAL(erfcinv, inverse_erfc)
ONS_CPU_SPECIAL(erfcx, scaled_erfc)
ONS_CPU_SPECIAL(erfinv, inverse_erf)
ONS_CPU_SPECIAL(normcdf, normal)
#undef ONS_CPU_SPECIAL
inline double normcdfinv(double x) { return 0.0 - erfcinv(2.0 * x) / ons_cpu::sqrt_half; }
inline float normcdfinvf(float x) { return float(normcdfinv(double(x))); }
inline float normcdfinv(float x) { return normcdfinvf(x); }
inline double cyl_bessel_i0(double x) { return ons_cpu::bessel_i(0, x); }
inline double cyl_bessel_i1(double x) { return ons_cpu::bessel_i(1, x); }
inline float cyl_bessel_i0f(float x) { return float(ons_cpu::bessel_i(0, x)); }
inline float cyl_bessel_i1f(float x) { return float(ons_cpu::bessel_i(1, x)); }
inline float cyl_bessel_i0(float x) { return cyl_bessel_i0f(x); }
inline float cyl_bessel_i1(float x) { return cyl_bessel_i1f(x); }

// C's own Bessel functions have no overloads.
#define ONS_CPU_BESSEL(name)                                             \
  template <class T_>                                                    \
  inline typename ons_cpu::if_float<T_>::type name##0(T_ x) {            \
    return ::name##0f(x);                                                \
  }                                                                      \
  template <class T_>                                                    \
  inline typename ons_cpu::if_float<T_>::type name##1(T_ x) {            \
    return ::name##1f(x);                                                \
  }                                                                      \
  template <class T_>                                                    \
  inline typename ons_cpu::if_float<T_>::type name##n(int order, T_ x) { \
    return ::name##nf(order, x);                                         \
  }
ONS_CPU_BESSEL(j)
ONS_CPU_BESSEL(y)
#undef ONS_CPU_BESSEL

#define ONS_CPU_NORMS(type, suffix)                             \
  inline type norm##suffix(int count, const type* x) {          \
    return type(ons_cpu::squares_of(count, x).norm());          \
  }                                                             \
  inline type rnorm##suffix(int count, const type* x) {         \
    return type(ons_cpu::squares_of(count, x).reciprocal());    \
  }                                                             \
  inline type norm3d##suffix(type x, type y, type z) {          \
    const type all[] = {x, y, z};                               \
    return norm##suffix(3, all);                                \
  }                                                             \
  inline type rnorm3d##suffix(type x, type y, type z) {         \
    const type all[] = {x, y, z};                               \
    return rnorm##suffix(3, all);                               \
  }                                                             \
  inline type norm4d##suffix(type x, type y, type z, type w) {  \
    const type all[] = {x, y, z, w};                            \
    return norm##suffix(4, all);                                \
  }                                                             \
  inline type rnorm4d##suffix(type x, type y, type z, type w) { \
    const type all[] = {x, y, z, w};                            \
    return rnorm##suffix(4, all);                               \
  }
ONS_CPU_NORMS(float, f)
ONS_CPU_NORMS(double, )
#undef ONS_CPU_NORMS

}  // namespace ons_cpu_dialect

#endif  // ONSTREAM_CPU_SPECIAL_H_
