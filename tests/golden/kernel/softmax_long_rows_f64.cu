static __device__ __forceinline__ double max_f64(double a, double b) { return a > b || a != a ? a : b; }
static __device__ __forceinline__ double lanes_reduce_max_f64(double x, int lane, int team, double* shared) {
    double x16 = __shfl_xor_sync(0xffffffffu, x, 16);
    x = max_f64(x, x16);
    double x8 = __shfl_xor_sync(0xffffffffu, x, 8);
    x = max_f64(x, x8);
    double x4 = __shfl_xor_sync(0xffffffffu, x, 4);
    x = max_f64(x, x4);
    double x2 = __shfl_xor_sync(0xffffffffu, x, 2);
    x = max_f64(x, x2);
    double x1 = __shfl_xor_sync(0xffffffffu, x, 1);
    x = max_f64(x, x1);
    if (lane % 32 == 0)
        shared[team * 32 + lane / 32] = x;
    __syncthreads();
    x = shared[team * 32];
    for (int i = 1; i < 32; i++) x = max_f64(x, shared[team * 32 + i]);
    __syncthreads();
    return x;
}
static __device__ __forceinline__ double lanes_reduce_sum_f64(double x, int lane, int team, double* shared) {
    double x16 = __shfl_xor_sync(0xffffffffu, x, 16);
    x = x + x16;
    double x8 = __shfl_xor_sync(0xffffffffu, x, 8);
    x = x + x8;
    double x4 = __shfl_xor_sync(0xffffffffu, x, 4);
    x = x + x4;
    double x2 = __shfl_xor_sync(0xffffffffu, x, 2);
    x = x + x2;
    double x1 = __shfl_xor_sync(0xffffffffu, x, 1);
    x = x + x1;
    if (lane % 32 == 0)
        shared[team * 32 + lane / 32] = x;
    __syncthreads();
    x = shared[team * 32];
    for (int i = 1; i < 32; i++) x = x + shared[team * 32 + i];
    __syncthreads();
    return x;
}
extern "C" __global__ void __launch_bounds__(1024)
fused(const double* __restrict__ in0, double* __restrict__ out0) {
    __shared__ double shared_f64[32];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part + team;
    double a0 = -__longlong_as_double(0x7ff0000000000000ll);
    for (int p = lane * 2; p < 50000; p += 2048) {
        const double2 w0 = *(const double2*)(in0 + q * 50000 + p);
        const double v0_0 = w0.x;
        const double v0_1 = w0.y;
        a0 = max_f64(v0_0, a0);
        a0 = max_f64(v0_1, a0);
    }
    a0 = lanes_reduce_max_f64(a0, lane, team, shared_f64);
    const double v1 = a0;
    double a1 = 0.0;
    for (int p = lane * 2; p < 50000; p += 2048) {
        const double2 w0 = *(const double2*)(in0 + q * 50000 + p);
        const double v0_0 = w0.x;
        const double v0_1 = w0.y;
        const double v2_0 = v0_0 - v1;
        const double v2_1 = v0_1 - v1;
        const double v3_0 = exp(v2_0);
        const double v3_1 = exp(v2_1);
        a1 = v3_0 + a1;
        a1 = v3_1 + a1;
    }
    a1 = lanes_reduce_sum_f64(a1, lane, team, shared_f64);
    const double v4 = a1;
    const double v5 = 1 / v4;
    for (int p = lane * 2; p < 50000; p += 2048) {
        const double2 w0 = *(const double2*)(in0 + q * 50000 + p);
        const double v0_0 = w0.x;
        const double v0_1 = w0.y;
        const double v2_0 = v0_0 - v1;
        const double v2_1 = v0_1 - v1;
        const double v3_0 = exp(v2_0);
        const double v3_1 = exp(v2_1);
        const double v6_0 = v3_0 * v5;
        const double v6_1 = v3_1 * v5;
        *(double2*)(out0 + q * 50000 + p) = make_double2(v6_0, v6_1);
    }
}
