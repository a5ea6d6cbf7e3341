static __device__ __forceinline__ float max_f32(float a, float b) { return a > b || a != a ? a : b; }
static __device__ __forceinline__ float teams_reduce_max_f32_0(float x, int lane, int team, float* shared) {
    int i = team * 32 + lane;
    shared[i] = x;
    __syncthreads();
    for (int d = 16; d > 0; d /= 2) {
        if (team < d) shared[i] = max_f32(shared[i], shared[i + d * 32]);
        __syncthreads();
    }
    x = shared[lane];
    __syncthreads();
    return x;
}
static __device__ __forceinline__ float teams_reduce_max_f32(float x, int lane, int team, float* shared) {
    int i = team * 32 + lane;
    shared[i] = x;
    __syncthreads();
    for (int d = 16; d > 0; d /= 2) {
        if (team < d) shared[i] = max_f32(shared[i], shared[i + d * 32]);
        __syncthreads();
    }
    x = shared[lane];
    __syncthreads();
    return x;
}
extern "C" __global__ void __launch_bounds__(1024)
fused_0(const float* __restrict__ in0, float* __restrict__ out0) {
    __shared__ float shared_f32[1024];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part / 75;
    const int p = part % 75 * 32 + lane;
    float a0 = -__int_as_float(0x7f800000);
    #pragma unroll 4
    for (int r = team; r < 2000; r += 32) {
        const float v0 = in0[r * 24 + (p / 24) * 48000 + p % 24];
        a0 = max_f32(v0, a0);
    }
    a0 = teams_reduce_max_f32_0(a0, lane, team, shared_f32);
    const float v1 = a0;
    if (team == 0) {
        out0[p] = v1;
    }
}
extern "C" __global__ void __launch_bounds__(1024)
fused(const float* __restrict__ in0, float* __restrict__ out0) {
    __shared__ float shared_f32[1024];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part;
    const int wanted = lane;
    const bool active = wanted <= 23;
    const int p = active ? wanted : 23;
    float a0 = -__int_as_float(0x7f800000);
    #pragma unroll 4
    for (int r = team; r < 100; r += 32) {
        const float v0 = in0[r * 24 + p];
        a0 = max_f32(v0, a0);
    }
    a0 = teams_reduce_max_f32(a0, lane, team, shared_f32);
    const float v1 = a0;
    if (team == 0 && active) {
        out0[p] = v1;
    }
}
